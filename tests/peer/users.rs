//! Clients that are neither pods nor units.

use podresources_proxy::peer::Client;

use crate::caller::{Door, is_root};
use crate::cgroups::{Cgroups, hierarchies};

#[test]
fn a_process_in_no_pod_and_no_unit_is_its_user() {
    if !is_root("a process of another user") {
        return;
    }
    let door = Door::open();
    for uid in [0, 65534, 4_000_000_000] {
        let caller = door.call_as(uid);
        let peer = door.peer();
        // A machine's own session may put all of its processes into a unit.
        if !matches!(peer.client, Client::Unit(_)) {
            assert_eq!(peer.client, Client::Uid(uid));
        }
        assert_eq!((peer.uid, peer.pid), (uid, Some(caller.pid())));
        caller.end();
        std::fs::remove_file(door.socket().with_file_name("dial")).unwrap();
    }
}

#[test]
fn a_cgroup_that_is_no_pods_is_its_user() {
    if !is_root("a process in a cgroup of its own") {
        return;
    }
    let hierarchy = hierarchies().pop().unwrap();
    let cgroups = Cgroups::new(&hierarchy);
    let door = Door::open();
    let caller = door.call_from(&[cgroups.cgroup("kubepods/burstable/poda")]);
    let client = door.peer().client;
    assert!(matches!(client, Client::Uid(0) | Client::Unit(_)), "{client}");
    caller.end();
}
