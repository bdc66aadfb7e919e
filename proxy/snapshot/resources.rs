//! What a pod holds that no other pod may hold beside it, read from its record.

use std::fmt;

use super::wire::{Field, Fields, Malformed, Value};

/// A thing that a pod holds. Memory is left out: its type and size name no piece of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Holding<'a> {
    /// A CPU, the pod's own or a container's.
    Cpu(u64),
    /// A device of a device plugin.
    Plugin(PluginDevice<'a>),
    /// A device allocated by DRA (KEP-4381), or a share of one.
    Dra { driver: &'a str, pool: &'a str, device: &'a str, share: &'a str },
    /// A device of a DRA claim as Kubernetes up to 1.30 names it: by its CDI name alone.
    Cdi(&'a str),
}

/// A device of a device plugin: the resource's name and the device's id, as the plugin gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PluginDevice<'a> {
    /// "example.com/gpu"
    pub resource: &'a str,
    /// The id, unique within the resource.
    pub id: &'a str,
}

/// Calls `each` for everything that the pod of this record holds; a thing that stands there several times, several times.
pub(super) fn each_holding<'a>(record: &'a [u8], mut each: impl FnMut(Holding<'a>)) -> Result<(), Malformed> {
    each_message(Fields::of(record), 1, |pod| {
        each_number(pod.clone(), 4, |cpu| each(Holding::Cpu(cpu)))?;
        each_message(pod, 3, |container| {
            each_number(container.clone(), 3, |cpu| each(Holding::Cpu(cpu)))?;
            each_message(container.clone(), 2, |devices| each_device(&devices, |device| each(Holding::Plugin(device))))?;
            each_message(container, 5, |claim| each_message(claim, 4, |resource| each_of_claim(&resource, &mut each)))
        })
    })
}

/// Calls `each` for every device of a `ContainerDevices`.
pub(super) fn each_device<'a>(devices: &Fields<'a>, mut each: impl FnMut(PluginDevice<'a>)) -> Result<(), Malformed> {
    let resource = last_text(devices.clone(), 1)?;
    each_body(devices.clone(), 2, |_, id| {
        each(PluginDevice { resource, id: text(id) });
        Ok(())
    })
}

fn each_of_claim<'a>(resource: &Fields<'a>, mut each: impl FnMut(Holding<'a>)) -> Result<(), Malformed> {
    let device = last_text(resource.clone(), 4)?;
    if device.is_empty() {
        return each_message(resource.clone(), 1, |cdi| {
            each(Holding::Cdi(last_text(cdi, 1)?));
            Ok(())
        });
    }
    let (driver, pool) = (last_text(resource.clone(), 2)?, last_text(resource.clone(), 3)?);
    each(Holding::Dra { driver, pool, device, share: last_text(resource.clone(), 5)? });
    Ok(())
}

fn each_message<'a>(
    fields: Fields<'a>,
    number: u32,
    mut each: impl FnMut(Fields<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    each_body(fields, number, |field, body| each(field.within(body)))
}

fn each_body<'a>(
    mut fields: Fields<'a>,
    number: u32,
    mut each: impl FnMut(&Field<'a>, &'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while let Some(field) = fields.next()? {
        if let Value::Bytes(body) = field.value
            && field.number == number
        {
            each(&field, body)?;
        }
    }
    Ok(())
}

fn each_number(mut fields: Fields<'_>, number: u32, mut each: impl FnMut(u64)) -> Result<(), Malformed> {
    while let Some(field) = fields.next()? {
        match field.value {
            Value::Varint(value) if field.number == number => each(value),
            Value::Bytes(packed) if field.number == number => {
                let mut values = field.within(packed);
                while let Some(value) = values.next_packed()? {
                    each(value);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The last string of this number, as protobuf has it; empty where there is none.
fn last_text(fields: Fields<'_>, number: u32) -> Result<&str, Malformed> {
    let mut last = "";
    each_body(fields, number, |_, body| {
        last = text(body);
        Ok(())
    })?;
    Ok(last)
}

/// The digest's walk has refused strings that are not UTF-8.
fn text(body: &[u8]) -> &str {
    std::str::from_utf8(body).unwrap_or_default()
}

// === impl Holding ===

impl fmt::Display for Holding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(id) => write!(f, "CPU {id}"),
            Self::Plugin(PluginDevice { resource, id }) => write!(f, "device {id} of {resource}"),
            Self::Dra { driver, pool, device, share: "" } => write!(f, "device {driver}/{pool}/{device}"),
            Self::Dra { driver, pool, device, share } => write!(f, "share {share} of device {driver}/{pool}/{device}"),
            Self::Cdi(name) => write!(f, "CDI device {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::v1;

    fn holdings(pod: v1::PodResources) -> Vec<String> {
        let record = v1::GetPodResourcesResponse { pod_resources: Some(pod) }.encode_to_vec();
        let mut all = Vec::new();
        each_holding(&record, |holding| all.push(holding.to_string())).unwrap();
        all.sort();
        all
    }

    fn on_container(container: v1::ContainerResources) -> v1::PodResources {
        v1::PodResources { containers: vec![container], ..Default::default() }
    }

    #[test]
    fn cpus_are_the_pods_own_and_its_containers() {
        let mut pod = on_container(v1::ContainerResources { cpu_ids: vec![3, 300], ..Default::default() });
        pod.cpu_ids = vec![7];
        assert_eq!(holdings(pod), ["CPU 3", "CPU 300", "CPU 7"]);
    }

    #[test]
    fn each_device_id_is_a_device_of_its_resource() {
        let devices =
            v1::ContainerDevices { resource_name: "a/b".into(), device_ids: vec!["0".into(), "1".into()], ..Default::default() };
        let pod = on_container(v1::ContainerResources { devices: vec![devices], ..Default::default() });
        assert_eq!(holdings(pod), ["device 0 of a/b", "device 1 of a/b"]);
    }

    #[test]
    fn a_claimed_device_is_known_by_driver_pool_device_and_share_or_by_cdi_names_where_an_old_kubelet_has_no_more() {
        let cdi = v1::CdiDevice { name: "a/b=c".into() };
        let named = v1::ClaimResource {
            cdi_devices: vec![cdi.clone()],
            driver_name: "d".into(),
            pool_name: "p".into(),
            device_name: "x".into(),
            share_id: None,
        };
        let shared = v1::ClaimResource { share_id: Some("s".into()), ..named.clone() };
        let old = v1::ClaimResource { cdi_devices: vec![cdi], ..Default::default() };
        let claim = v1::DynamicResource { claim_resources: vec![named, shared, old], ..Default::default() };
        let pod = on_container(v1::ContainerResources { dynamic_resources: vec![claim], ..Default::default() });
        assert_eq!(holdings(pod), ["CDI device a/b=c", "device d/p/x", "share s of device d/p/x"]);
    }

    #[test]
    fn a_resource_name_after_its_ids_is_theirs_and_the_last_one_counts() {
        let devices = [0x12, 1, b'0', 0x0a, 1, b'a', 0x0a, 1, b'b'];
        let mut all = Vec::new();
        each_device(&Fields::of(&devices), |device| all.push(device)).unwrap();
        assert_eq!(all, [PluginDevice { resource: "b", id: "0" }]);
    }
}
