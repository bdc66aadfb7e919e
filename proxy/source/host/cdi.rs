//! Devices by their CDI names (Container Device Interface, `tags.cncf.io/container-device-interface`): told, never answered with.
//!
//! A CDI kind such as `nvidia.com/gpu` looks like a kubelet's resource name and is none: the device plugin has ids of its own under it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::cgroup::read;
use super::skip::{Skipped, Why};

/// The longest specification that is read, in bytes, and how many are.
const LONGEST: u64 = 4 << 20;
const MOST_FILES: usize = 256;
/// Devices told at most.
const MOST_DEVICES: usize = 4096;

/// A device that has a name of its own on this machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CdiDevice {
    /// `vendor.com/class=device`
    pub name: String,
    /// The NUMA nodes of its device files, where sysfs tells them.
    pub numa: BTreeSet<u32>,
}

#[derive(Deserialize)]
struct Spec {
    kind: String,
    #[serde(default)]
    devices: Vec<Device>,
}

#[derive(Deserialize)]
struct Device {
    name: String,
    #[serde(default, rename = "containerEdits")]
    edits: Edits,
}

#[derive(Default, Deserialize)]
struct Edits {
    #[serde(default, rename = "deviceNodes")]
    nodes: Vec<DeviceNode>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceNode {
    path: PathBuf,
    host_path: Option<PathBuf>,
}

/// The devices of all specifications in these directories; a name that is told twice is told once.
pub(super) fn devices(dirs: &[PathBuf], sys: &Path, skipped: &mut Skipped) -> Vec<CdiDevice> {
    let files = dirs.iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten()).map(|entry| entry.path());
    let is_spec = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json" || extension == "yaml");
    let mut files: Vec<PathBuf> = files.filter(is_spec).collect();
    files.sort_unstable();
    let mut devices = Vec::new();
    for file in files.iter().take(MOST_FILES) {
        match spec(file) {
            Ok(spec) => {
                let named = spec.devices.iter().map(|device| CdiDevice {
                    name: spec.name_of(device),
                    numa: device.edits.nodes.iter().filter_map(|node| numa(node.file(), sys)).collect(),
                });
                devices.extend(named);
            }
            Err(error) => skipped.add(Why::BadCdi, file.display().to_string(), error),
        }
    }
    devices.sort_unstable();
    devices.dedup_by(|a, b| a.name == b.name);
    let over = files.len().saturating_sub(MOST_FILES) + devices.len().saturating_sub(MOST_DEVICES);
    if over > 0 {
        skipped.add(Why::BadCdi, "CDI specifications", format!("{over} files or devices more than are read"));
    }
    devices.truncate(MOST_DEVICES);
    devices
}

/// Reads one specification. JSON is YAML.
fn spec(file: &Path) -> Result<Spec, String> {
    let mut text = String::new();
    let opened = fs::File::open(file).map_err(|error| error.to_string())?;
    opened.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LONGEST {
        return Err(format!("it is longer than {LONGEST} bytes"));
    }
    parse(&text)
}

fn parse(text: &str) -> Result<Spec, String> {
    serde_norway::from_str(text).map_err(|error| error.to_string())
}

/// The names in one specification. For [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub fn cdi_names(text: &str) -> Result<Vec<String>, String> {
    parse(text).map(|spec| spec.devices.iter().map(|device| spec.name_of(device)).collect())
}

/// The NUMA node of a device file, as `/sys/dev` tells it; -1 is none.
fn numa(file: &Path, sys: &Path) -> Option<u32> {
    let metadata = fs::metadata(file).ok()?;
    let kind = if metadata.file_type().is_char_device() {
        "char"
    } else if metadata.file_type().is_block_device() {
        "block"
    } else {
        return None;
    };
    let number = metadata.rdev();
    let device = format!("dev/{kind}/{}:{}/device/numa_node", rustix::fs::major(number), rustix::fs::minor(number));
    read(&sys.join(device)).ok()?.trim().parse().ok()
}

// === impl Spec ===

impl Spec {
    /// As runtimes are asked for it.
    fn name_of(&self, device: &Device) -> String {
        format!("{}={}", self.kind, device.name)
    }
}

// === impl DeviceNode ===

impl DeviceNode {
    fn file(&self) -> &Path {
        self.host_path.as_deref().unwrap_or(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_have_their_qualified_name_and_the_numa_node_of_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let sys = tempfile::tempdir().unwrap();
        // The null device is 1:3 everywhere.
        fs::create_dir_all(sys.path().join("dev/char/1:3/device")).unwrap();
        fs::write(sys.path().join("dev/char/1:3/device/numa_node"), "1\n").unwrap();
        let json = r#"{"cdiVersion":"0.6.0","kind":"example.com/gpu","devices":[
            {"name":"0","containerEdits":{"deviceNodes":[{"path":"/dev/gpu0","hostPath":"/dev/null"}]}},{"name":"all"}]}"#;
        fs::write(dir.path().join("a.json"), json).unwrap();
        fs::write(dir.path().join("b.yaml"), "kind: example.com/nic\ndevices:\n- name: eth1\n").unwrap();
        fs::write(dir.path().join("c.json"), "{").unwrap();
        fs::write(dir.path().join("README"), "{").unwrap();
        let mut skipped = Skipped::default();
        let dirs = [dir.path().to_owned(), PathBuf::from("/nonexistent/cdi")];
        let found = devices(&dirs, sys.path(), &mut skipped);
        let found: Vec<_> =
            found.iter().map(|device| (device.name.as_str(), device.numa.iter().copied().collect::<Vec<_>>())).collect();
        assert_eq!(found, [("example.com/gpu=0", vec![1]), ("example.com/gpu=all", vec![]), ("example.com/nic=eth1", vec![])]);
        assert_eq!(skipped.count(Why::BadCdi), 1, "{skipped:?}");
    }
}
