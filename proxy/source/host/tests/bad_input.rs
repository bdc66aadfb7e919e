//! Whatever is odd is counted and named; nothing of it makes a wrong answer.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;

use super::super::Why;
use super::fake::{Fake, PodAt, told};
use super::{BURSTABLE, GUARANTEED, TOLD, two_pods};

fn node() -> Fake {
    let fake = Fake::new("kubepods.slice");
    two_pods(&fake, GUARANTEED, BURSTABLE);
    fake
}

#[test]
fn ten_thousand_stray_cgroups_are_counted_and_change_nothing() {
    let fake = node();
    for at in 0..9_998 {
        fs::create_dir(fake.path("cgroup/kubepods.slice").join(format!("stray-{at}.slice"))).unwrap();
    }
    fs::create_dir(fake.path("cgroup").join(BURSTABLE.cgroup()).join("stray")).unwrap();
    fs::create_dir(fake.path("cgroup/kubepods.slice/kubepods-burstable.slice/stray")).unwrap();
    let pods = fake.scanned();
    assert_eq!((told(&pods), pods.skipped.count(Why::Stray)), (TOLD.map(str::to_owned).to_vec(), 10_000));
    assert!(pods.skipped.named().len() < 20);
}

#[test]
fn a_bundle_that_is_not_json_leaves_its_container_out_and_keeps_its_cpus_from_others() {
    let fake = node();
    let id = BURSTABLE.child(1).1;
    fake.write(&format!("bundles/{id}/config.json"), "not JSON");
    fake.cgroup(&BURSTABLE.child(1).0, "3", "0-1");
    let pods = fake.scanned();
    assert_eq!(told(&pods), ["ns/own/main: -", "ns/shared/b: -"]);
    assert_eq!(pods.skipped.count(Why::BadBundle), 1);
    assert!(pods.skipped.named()[0].detail.contains("no OCI bundle"), "{:?}", pods.skipped);
}

#[test]
fn a_bundle_of_another_pod_names_nobody() {
    let fake = node();
    let foreign = fs::read(fake.path("bundles").join(GUARANTEED.child(1).1).join("config.json")).unwrap();
    fake.write(&format!("bundles/{}/config.json", BURSTABLE.child(1).1), foreign);
    let pods = fake.scanned();
    assert_eq!(told(&pods), ["ns/own/main: 3", "ns/shared/b: -"]);
    assert_eq!(pods.skipped.count(Why::ForeignBundle), 1);
}

#[test]
fn a_cpuset_that_is_no_list_or_out_of_range_is_named_and_then_nobody_has_cpus() {
    for (text, said) in [("0-x", "0-x"), ("0-99999", "99999"), ("5-1", "5-1"), ("\u{0}\u{1}", "not a list")] {
        let fake = node();
        fake.write(&format!("cgroup/{}/cpuset.cpus.effective", BURSTABLE.child(1).0), format!("{text}\n"));
        let pods = fake.scanned();
        assert_eq!(told(&pods), ["ns/own/main: -", "ns/shared/a: -", "ns/shared/b: -"], "{text:?}");
        assert_eq!(pods.skipped.count(Why::BadCpuset), 1);
        assert!(pods.skipped.named()[0].detail.contains(said), "{:?}", pods.skipped);
    }
}

#[test]
fn a_cpuset_that_cannot_be_read_is_named() {
    let fake = node();
    let file = fake.path("cgroup").join(BURSTABLE.child(1).0).join("cpuset.cpus.effective");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let pods = fake.scanned();
    assert_eq!((told(&pods)[0].as_str(), pods.skipped.count(Why::BadCpuset)), ("ns/own/main: -", 1));
}

#[test]
fn a_file_that_never_ends_is_given_up() {
    let fake = node();
    fake.write(&format!("cgroup/{}/cpuset.cpus.effective", BURSTABLE.child(1).0), "0,".repeat(100_000));
    assert_eq!(fake.scanned().skipped.count(Why::BadCpuset), 1);
}

#[test]
fn a_half_made_container_without_a_set_has_nothing() {
    let fake = node();
    fake.cgroup(&GUARANTEED.child(1).0, "", "");
    let pods = fake.scanned();
    assert_eq!((told(&pods)[0].as_str(), pods.skipped.total()), ("ns/own/main: -", 0));
}

#[test]
fn a_cgroup_left_over_without_processes_or_bundle_is_counted_and_holds_nothing() {
    let fake = node();
    let (left, _) = BURSTABLE.child(7);
    fake.cgroup(&left, "3", "0-1");
    fake.write(&format!("cgroup/{left}/cgroup.events"), "populated 0\nfrozen 0\n");
    let pods = fake.scanned();
    assert_eq!((told(&pods), pods.skipped.count(Why::LeftOver)), (TOLD.map(str::to_owned).to_vec(), 1));
}

#[test]
fn a_container_without_a_bundle_that_has_processes_keeps_its_cpus_from_others() {
    let fake = node();
    fake.cgroup(&BURSTABLE.child(7).0, "3", "0-1");
    let pods = fake.scanned();
    assert_eq!((told(&pods)[0].as_str(), pods.skipped.count(Why::ContainerWithoutName)), ("ns/own/main: -", 1));
}

#[test]
fn a_pod_without_a_name_or_with_no_named_container_is_left_out_and_counted() {
    let fake = node();
    let nameless = PodAt { name: "nameless", number: 5, ..BURSTABLE };
    fake.cgroup(&nameless.cgroup(), "0-7", "0-1");
    fake.cgroup(&nameless.child(1).0, "0", "0-1");
    let pods = fake.scanned();
    assert_eq!((told(&pods).len(), pods.skipped.count(Why::PodWithoutName)), (3, 1));
    // With logs it has a name, and still nobody knows what runs in it.
    fake.pod(nameless);
    let pods = fake.scanned();
    assert_eq!((told(&pods).len(), pods.skipped.count(Why::PodWithoutContainers)), (3, 1));
}

#[test]
fn names_with_odd_bytes_are_counted() {
    let fake = node();
    for at in ["cgroup/kubepods.slice", "logs"] {
        fs::create_dir(fake.path(at).join(OsStr::from_bytes(b"odd\xff\n"))).unwrap();
    }
    fs::create_dir(fake.path("logs/ns_a b_01234567-89ab-cdef-0123-0000000000ff")).unwrap();
    let nameless = PodAt { number: 5, ..BURSTABLE };
    fake.cgroup(&nameless.child(1).0, "0", "0-1");
    let pods = fake.scanned();
    assert_eq!((told(&pods), pods.skipped.count(Why::OddName)), (TOLD.map(str::to_owned).to_vec(), 2));
}

#[test]
fn a_kubepods_root_without_a_readable_set_has_pods_and_no_cpus() {
    let fake = node();
    fake.write("cgroup/kubepods.slice/cpuset.cpus.effective", "all of them\n");
    let pods = fake.scanned();
    assert_eq!(told(&pods), ["ns/own/main: -", "ns/shared/a: -", "ns/shared/b: -"]);
    assert_eq!(pods.skipped.count(Why::BadCpuset), 1);
}
