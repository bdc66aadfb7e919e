//! Pod names from the kubelet's pod log directory: `<namespace>_<name>_<uid>`.

use std::collections::HashMap;
use std::path::Path;

use super::bundle::{label, subdomain};
use super::uid::PodUid;
use crate::snapshot::PodName;

pub(super) fn uids(dir: &Path) -> HashMap<PodName, Vec<PodUid>> {
    let mut uids: HashMap<_, Vec<_>> = HashMap::new();
    for (pod, uid) in pods(dir) {
        uids.entry(pod).or_default().push(uid);
    }
    uids
}

/// The pods by uid, and how many entries name none.
pub(super) fn survey(dir: &Path) -> (HashMap<PodUid, PodName>, u64) {
    let (mut names, mut odd) = (HashMap::new(), 0);
    let Ok(entries) = std::fs::read_dir(dir) else { return (names, odd) };
    for entry in entries.flatten() {
        let file_name = entry.file_name();
        match file_name.to_str().and_then(parse).filter(|(namespace, name, _)| label(namespace) && subdomain(name)) {
            Some((namespace, name, uid)) => {
                names.insert(uid, PodName { namespace: namespace.to_owned(), name: name.to_owned() });
            }
            None => odd += 1,
        }
    }
    (names, odd)
}

pub(super) fn names(dir: &Path) -> HashMap<PodUid, PodName> {
    pods(dir).map(|(pod, uid)| (uid, pod)).collect()
}

fn pods(dir: &Path) -> impl Iterator<Item = (PodName, PodUid)> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|entry| {
        let entry = entry.file_name();
        let (namespace, name, uid) = parse(entry.to_str()?)?;
        Some((PodName { namespace: namespace.to_owned(), name: name.to_owned() }, uid))
    })
}

/// Neither namespaces nor pod names may have an underscore (RFC 1123 labels and subdomains), so the two bars are the separators.
fn parse(entry: &str) -> Option<(&str, &str, PodUid)> {
    let (namespace, rest) = entry.split_once('_')?;
    let (name, uid) = rest.split_once('_')?;
    Some((namespace, name, PodUid::parse(uid)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_directory_names_namespace_pod_and_uid() {
        let uid = PodUid::parse("0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(parse("kube-system_dns-1_01234567-89ab-cdef-0123-456789abcdef"), Some(("kube-system", "dns-1", uid)));
        assert_eq!(parse("default_static-node1_0123456789abcdef0123456789abcdef"), Some(("default", "static-node1", uid)));
    }

    #[test]
    fn anything_else_there_is_passed_over() {
        for entry in ["", "a", "a_b", "a_b_c", "a_b_0123456789abcdef0123456789abcdef_d"] {
            assert_eq!(parse(entry), None, "{entry}");
        }
    }

    #[test]
    fn a_missing_directory_names_nobody() {
        assert!(uids(Path::new("/nonexistent/pods")).is_empty());
    }

    #[test]
    fn a_pod_is_found_by_its_uid_and_what_names_no_pod_is_counted() {
        use std::os::unix::ffi::OsStrExt as _;

        let dir = tempfile::tempdir().unwrap();
        let uid = "0123456789abcdef0123456789abcdef";
        for entry in [format!("ns_pod_{uid}").as_bytes(), format!("Ns_p od_{uid}").as_bytes(), b"lost+found", b"a_\xff_b"] {
            std::fs::create_dir(dir.path().join(std::ffi::OsStr::from_bytes(entry))).unwrap();
        }
        let (names, odd) = survey(dir.path());
        assert_eq!((names.len(), odd), (1, 3));
        assert_eq!(names[&PodUid::parse(uid).unwrap()].to_string(), "ns/pod");
    }

    #[test]
    fn two_incarnations_of_a_pod_are_both_told() {
        let dir = tempfile::tempdir().unwrap();
        for uid in ["0123456789abcdef0123456789abcdef", "fedcba98-7654-3210-fedc-ba9876543210"] {
            std::fs::create_dir(dir.path().join(format!("ns_pod_{uid}"))).unwrap();
        }
        let named = names(dir.path());
        assert_eq!(named.len(), 2);
        assert!(named.values().all(|pod| pod.name == "pod" && pod.namespace == "ns"));
        assert_eq!(uids(dir.path())[&PodName { namespace: "ns".to_owned(), name: "pod".to_owned() }].len(), 2);
    }
}
