//! What a runtime notes of a container in its bundle (OCI runtime specification, `config.json`): annotations of containerd's CRI plugin
//! and of CRI-O. Pure.

use std::borrow::Cow;

use serde::Deserialize;

use super::uid::PodUid;
use crate::snapshot::PodName;

/// A container or sandbox, as its bundle names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Whether it is the pod's sandbox.
    pub sandbox: bool,
    /// The container's name in the pod; a sandbox has none.
    pub container: Option<String>,
    /// The pod, where it is told.
    pub pod: Option<PodName>,
    /// The pod's uid, where it is told.
    pub uid: Option<PodUid>,
}

/// Why a bundle says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// No JSON, or another shape than the specification has.
    #[error("it is no OCI bundle: {0}")]
    NotABundle(String),
    /// A bundle without the annotations of a CRI runtime.
    #[error("it has no annotation that says what it is")]
    NoAnnotations,
    /// A name that no Kubernetes object can have.
    #[error("{0:?} is no name of Kubernetes")]
    OddName(String),
}

#[derive(Deserialize)]
struct Bundle<'a> {
    #[serde(borrow, default)]
    annotations: Annotations<'a>,
}

#[derive(Default, Deserialize)]
struct Annotations<'a> {
    // containerd, pkg/cri/annotations
    #[serde(borrow, default, rename = "io.kubernetes.cri.container-type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.kubernetes.cri.container-name")]
    container: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.kubernetes.cri.sandbox-name")]
    pod: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.kubernetes.cri.sandbox-namespace")]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.kubernetes.cri.sandbox-uid")]
    uid: Option<Cow<'a, str>>,
    // CRI-O, pkg/annotations
    #[serde(borrow, default, rename = "io.kubernetes.cri-o.ContainerType")]
    crio_kind: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.kubernetes.cri-o.KubeName")]
    crio_pod: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.kubernetes.cri-o.Namespace")]
    crio_namespace: Option<Cow<'a, str>>,
    /// JSON in a string: the labels that the kubelet gave.
    #[serde(borrow, default, rename = "io.kubernetes.cri-o.Labels")]
    crio_labels: Option<Cow<'a, str>>,
}

/// The kubelet's own labels (`pkg/kubelet/types`).
#[derive(Default, Deserialize)]
struct Labels<'a> {
    #[serde(borrow, default, rename = "io.kubernetes.container.name")]
    container: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.kubernetes.pod.name")]
    pod: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.kubernetes.pod.namespace")]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.kubernetes.pod.uid")]
    uid: Option<Cow<'a, str>>,
}

// === impl Identity ===

impl Identity {
    /// Reads a `config.json`. `has_logs` says whether a container of this name has a log directory in the pod's: it decides where no
    /// annotation says whether this is a sandbox.
    pub fn read(json: &[u8], has_logs: impl FnOnce(&str) -> bool) -> Result<Self, BundleError> {
        let not_a_bundle = |error: serde_json::Error| BundleError::NotABundle(error.to_string());
        let Bundle { annotations: a } = serde_json::from_slice(json).map_err(not_a_bundle)?;
        let labels: Labels<'_> = match &a.crio_labels {
            Some(labels) => serde_json::from_str(labels).map_err(not_a_bundle)?,
            None => Labels::default(),
        };
        let container = a.container.or(labels.container).map(|name| checked(name, label)).transpose()?;
        let sandbox = match (a.kind.or(a.crio_kind).as_deref(), container.as_deref()) {
            (Some("sandbox"), _) => true,
            (Some("container"), Some(_)) => false,
            // containerd has had no type before 1.1; docker's shim names its sandbox `POD`, and nobody logs there.
            (None, Some(name)) => !has_logs(name),
            (Some(_) | None, _) => return Err(BundleError::NoAnnotations),
        };
        let pod = a.pod.or(labels.pod).or(a.crio_pod).map(|name| checked(name, subdomain)).transpose()?;
        let namespace = a.namespace.or(labels.namespace).or(a.crio_namespace).map(|name| checked(name, label)).transpose()?;
        let pod = pod.zip(namespace).map(|(name, namespace)| PodName { namespace, name });
        let uid = a.uid.or(labels.uid).and_then(|uid| PodUid::parse(&uid));
        Ok(Self { sandbox, container: container.filter(|_| !sandbox), pod, uid })
    }
}

fn checked(name: Cow<'_, str>, is_good: impl Fn(&str) -> bool) -> Result<String, BundleError> {
    if is_good(&name) { Ok(name.into_owned()) } else { Err(BundleError::OddName(name.chars().take(64).collect())) }
}

/// An RFC 1123 label: namespaces and containers. docker's shim has `POD` for its sandboxes.
pub(super) fn label(name: &str) -> bool {
    name == "POD" || (name.len() <= 63 && !name.contains('.') && subdomain(name))
}

/// An RFC 1123 subdomain: pods.
pub(super) fn subdomain(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    !name.is_empty() && name.len() <= 253 && name.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    fn read(json: &str) -> Result<Identity, BundleError> {
        Identity::read(json.as_bytes(), |_| false)
    }

    fn web() -> PodName {
        PodName { namespace: "shop".to_owned(), name: "web-0".to_owned() }
    }

    #[test]
    fn containerds_annotations_name_container_pod_and_uid() {
        let json = |kind: &str| {
            format!(
                r#"{{"ociVersion":"1.2.0","process":{{"args":["a"]}},"annotations":{{"io.kubernetes.cri.container-type":"{kind}",
                "io.kubernetes.cri.container-name":"main","io.kubernetes.cri.sandbox-name":"web-0","io.kubernetes.cri.sandbox-namespace":"shop",
                "io.kubernetes.cri.sandbox-uid":"{UID}"}}}}"#
            )
        };
        let uid = PodUid::parse(UID);
        let main = Identity { sandbox: false, container: Some("main".into()), pod: Some(web()), uid };
        assert_eq!(read(&json("container")), Ok(main));
        assert_eq!(read(&json("sandbox")), Ok(Identity { sandbox: true, container: None, pod: Some(web()), uid }));
    }

    #[test]
    fn cri_os_annotations_name_them_too_in_labels_or_beside_them() {
        let json = r#"{"annotations":{"io.kubernetes.cri-o.ContainerType":"container","io.kubernetes.cri-o.KubeName":"web-0",
            "io.kubernetes.cri-o.Namespace":"shop","io.kubernetes.cri-o.Labels":"{\"io.kubernetes.container.name\":\"main\"}"}}"#;
        assert_eq!(read(json), Ok(Identity { sandbox: false, container: Some("main".into()), pod: Some(web()), uid: None }));
        let json = format!(
            r#"{{"annotations":{{"io.kubernetes.cri-o.ContainerType":"sandbox","io.kubernetes.cri-o.Labels":
            "{{\"io.kubernetes.pod.name\":\"web-0\",\"io.kubernetes.pod.namespace\":\"shop\",\"io.kubernetes.pod.uid\":\"{UID}\"}}"}}}}"#
        );
        assert_eq!(read(&json), Ok(Identity { sandbox: true, container: None, pod: Some(web()), uid: PodUid::parse(UID) }));
    }

    #[test]
    fn without_a_type_what_logs_is_a_container_and_what_does_not_is_the_sandbox() {
        let json = br#"{"annotations":{"io.kubernetes.cri.container-name":"main"}}"#;
        assert!(!Identity::read(json, |name| name == "main").unwrap().sandbox);
        assert!(Identity::read(json, |_| false).unwrap().sandbox);
    }

    #[test]
    fn what_is_no_bundle_says_so_and_names_nobody() {
        for json in [
            "",
            "{",
            "7",
            "null",
            "\"a\"",
            r#"{"annotations":7}"#,
            r#"{"annotations":{"io.kubernetes.cri.container-name":7}}"#,
            "\u{0}",
        ] {
            assert!(matches!(read(json), Err(BundleError::NotABundle(_))), "{json}: {:?}", read(json));
        }
        assert!(matches!(
            Identity::read(b"{\"annotations\":{\"a\":\"\xff\"}}", |_| true),
            Err(BundleError::NotABundle(_) | BundleError::NoAnnotations)
        ));
        for json in ["{}", r#"{"annotations":{"a":"b"}}"#, r#"{"annotations":{"io.kubernetes.cri.container-type":"else"}}"#] {
            assert_eq!(read(json), Err(BundleError::NoAnnotations), "{json}");
        }
    }

    #[test]
    fn names_with_odd_bytes_are_refused() {
        for name in ["", "a/b", "../a", "A", "a b", "ü", "a\\n", &"a".repeat(64)] {
            let json = format!(
                r#"{{"annotations":{{"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":"{name}"}}}}"#
            );
            assert!(matches!(read(&json), Err(BundleError::OddName(_))), "{name}");
        }
    }
}
