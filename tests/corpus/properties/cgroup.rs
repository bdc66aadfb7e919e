//! Whose a process is, by its cgroups: nothing that is named below a container or a unit changes it.

use podresources_proxy::kubepods::PodUid;
use podresources_proxy::kubepods::path::{Owner, Vantage, memberships, owner};

use super::source::Source;

pub(crate) fn check(input: &[u8]) {
    let mut source = Source(input);
    let form = source.below(3);
    if form == 0 {
        return process(&String::from_utf8_lossy(source.0));
    }
    let path = if form == 1 { String::from_utf8_lossy(source.piece()).into_owned() } else { path(&mut source) };
    let (root, own, below) = if form == 1 {
        let mut text = || String::from_utf8_lossy(source.piece()).into_owned();
        (text(), text(), text())
    } else {
        ("/".to_owned(), self::path(&mut source), self::path(&mut source))
    };
    let first = Vantage::default();
    forged(&first, &path, &below);
    let vantage = Vantage::new(&root, &own);
    let found = vantage.owner(&path);
    well_formed(found.as_ref());
    // A path that leads up from a namespace's root is seen whole where that root's place is known.
    if root.split('/').any(|segment| segment == "..") || path.split('/').any(|segment| segment == "..") {
        return;
    }
    let seen_whole = Vantage::new("/", &own).owner(&format!("{root}/{path}"));
    assert_eq!(found, seen_whole, "{path:?} from {root:?}");
}

/// A whole `/proc/<pid>/cgroup`.
fn process(text: &str) {
    for membership in memberships(text) {
        assert!(!membership.path.contains('\n') && text.contains(membership.path));
    }
    well_formed(owner(memberships(text), |_| None).as_ref());
}

fn forged(vantage: &Vantage, path: &str, below: &str) {
    let found = vantage.owner(path);
    well_formed(found.as_ref());
    let Some(found) = found else { return };
    let deeper = vantage.owner(&format!("{path}/{below}"));
    match (found, deeper) {
        // A pod's own containers lie below it.
        (Owner::Pod { uid, container: None }, Some(Owner::Pod { uid: deeper, .. })) => {
            assert_eq!(uid, deeper, "{path:?}, {below:?}");
        }
        (found, deeper) => assert_eq!(Some(found), deeper, "{path:?}, {below:?}"),
    }
}

fn well_formed(owner: Option<&Owner>) {
    match owner {
        Some(Owner::Pod { uid, container }) => {
            assert_eq!(PodUid::parse(&uid.to_string()).as_ref(), Some(uid));
            assert!(container.as_ref().is_none_or(|id| id.len() >= 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())));
        }
        Some(Owner::Unit(name)) => assert!(!name.is_empty() && !name.contains('/'), "{name:?}"),
        None => {}
    }
}

/// A path of segments that mean something.
fn path(source: &mut Source<'_>) -> String {
    const SEGMENTS: [&str; 18] = [
        "kubepods",
        "kubepods.slice",
        "burstable",
        "kubepods-burstable.slice",
        "pod01234567-89ab-cdef-0123-456789abcdef",
        "kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice",
        "kubepods-burstable-podfedcba98_89ab_cdef_0123_456789abcdef.slice",
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "cri-containerd-fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210.scope",
        "crio-conmon-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.scope",
        "system.slice",
        "kubelet.service",
        "user.slice",
        "user-1000.slice",
        "session-2.scope",
        "kubelet.slice",
        "kubelet-kubepods.slice",
        "kubelet-kubepods-besteffort.slice",
    ];
    let mut path = String::new();
    for _ in 0..source.below(7) {
        path.push('/');
        let choice = usize::from(source.below(20));
        match SEGMENTS.get(choice) {
            Some(segment) => path.push_str(segment),
            None => path.push_str(&String::from_utf8_lossy(source.piece())),
        }
    }
    path
}
