//! Seen from a cgroup namespace of our own, as in a container, and from a pid namespace of our own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use podresources_proxy::kubepods::PodUid;
use podresources_proxy::peer::{Client, Unit};

use crate::caller::{Door, is_root, resolver};
use crate::cgroups::{Cgroups, hierarchies};

const OURS: &str = "00000000-0000-0000-0000-0000000000aa";
const OTHER: &str = "01234567-89ab-cdef-0123-456789abcdef";
const ID: &str = "4a1b2c3d4e5f60718293a4b5c6d7e8f90123456789abcdef0123456789abcdef";
/// Set where a test has started itself again in other namespaces: what it finds there.
const EXPECTED: &str = "PEER_TEST_EXPECTED";
/// The socket at which it listens there.
const SOCKET: &str = "PEER_TEST_SOCKET";

/// Takes one connection at the socket, and says who it is of. Runs in the namespaces that the outer process has made.
fn inside() -> Option<(String, String, bool)> {
    use std::os::fd::AsFd as _;
    let expected = std::env::var(EXPECTED).ok()?;
    let socket = PathBuf::from(std::env::var_os(SOCKET)?);
    let resolver = resolver(&socket.with_file_name("logs"));
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let (connection, _) = listener.accept().unwrap();
    let found = resolver.resolve(connection.as_fd()).client.to_string();
    Some((found, expected, resolver.sight().needs_host_pid()))
}

/// Runs this test again, as a process in the cgroup `own` with these flags of `unshare`, and has a process in `peers` dial it.
fn again(test: &str, unshare: &[&str], own: &PathBuf, peers: &PathBuf, expected: &Client, prepare: &str) {
    let door = Door::open();
    let socket = door.socket();
    std::fs::remove_file(&socket).unwrap();
    let script =
        format!(r#"echo 0 > "$OWN/cgroup.procs" && exec unshare "$@" sh -c '{prepare} exec "$TEST" --exact "$NAME" --nocapture'"#);
    let mut listening = Command::new("sh")
        .args(["-c", &script, "sh"])
        .args(unshare)
        .env("OWN", own)
        .env("TEST", std::env::current_exe().unwrap())
        .env("NAME", test)
        .env(EXPECTED, expected.to_string())
        .env(SOCKET, &socket)
        .spawn()
        .unwrap();
    while !socket.exists() {
        assert!(listening.try_wait().unwrap().is_none(), "it ended before it listened");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Bound a moment before it listens.
    while std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions()) & 0o666 != 0o666 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let caller = door.call_from(std::slice::from_ref(peers));
    let ended = listening.wait().unwrap();
    caller.end();
    assert!(ended.success(), "see above: {ended}");
}

#[test]
fn from_a_containers_cgroup_namespace_others_are_told_as_from_outside() {
    if let Some((found, expected, needs_host_pid)) = inside() {
        assert_eq!((found, needs_host_pid), (expected, false));
        return;
    }
    if !is_root("a cgroup namespace") {
        return;
    }
    let pod = |uid| Client::Pod { uid: PodUid::parse(uid).unwrap() };
    // The cgroup hierarchies of the node are there, as where our change sources work; or they are not.
    for hide in ["", "umount -l -R /sys/fs/cgroup &&"] {
        for hierarchy in hierarchies() {
            let cgroups = Cgroups::new(&hierarchy);
            let own = cgroups.cgroup(&format!("kubepods/burstable/pod{OURS}/{ID}"));
            let mut cases = vec![
                (format!("kubepods/burstable/pod{OTHER}/{ID}"), pod(OTHER)),
                (format!("kubepods/besteffort/pod{OTHER}/{ID}/child/kubepods/pod{OURS}"), pod(OTHER)),
                (format!("kubepods/pod{OTHER}/{ID}"), pod(OTHER)),
                ("system.slice/multus.service".to_owned(), Client::Unit(Unit::new("multus.service"))),
            ];
            if hide.is_empty() {
                // Ourselves, and a container beside us, by our own place.
                cases.push((format!("kubepods/burstable/pod{OURS}/{ID}"), pod(OURS)));
                cases.push((format!("kubepods/burstable/pod{OURS}/{}/kubepods/pod{OTHER}", ID.replace('4', "5")), pod(OURS)));
            }
            for (path, expected) in cases {
                let name = "namespace::from_a_containers_cgroup_namespace_others_are_told_as_from_outside";
                again(name, &["--cgroup", "--mount"], &own, &cgroups.cgroup(&path), &expected, hide);
            }
        }
    }
}

#[test]
fn from_a_pid_namespace_that_does_not_have_the_peer_it_is_its_user_and_we_say_what_is_missing() {
    if let Some((found, expected, needs_host_pid)) = inside() {
        assert_eq!((found, needs_host_pid), (expected, true));
        return;
    }
    if !is_root("a pid namespace") {
        return;
    }
    let cgroups = Cgroups::new(&hierarchies().pop().unwrap());
    let own = cgroups.cgroup(&format!("kubepods/burstable/pod{OURS}/{ID}"));
    let peer = cgroups.cgroup(&format!("kubepods/burstable/pod{OTHER}/{ID}"));
    let name = "namespace::from_a_pid_namespace_that_does_not_have_the_peer_it_is_its_user_and_we_say_what_is_missing";
    again(name, &["--pid", "--fork", "--mount-proc"], &own, &peer, &Client::Uid(0), "");
}
