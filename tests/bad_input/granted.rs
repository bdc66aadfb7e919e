//! What the programs in the kernel get of the rights that the proxy is started with, and that all else works whatever that is.
//!
//! As root each kind of rights is tried; anybody else, as in a virtual machine that was ordered so, tries their own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use podresources_proxy::admin::status::{ChangePart, Status};
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

use crate::client::LIST;
use crate::harness::Place;
use crate::somebody::{SOMEBODY, as_somebody, wrapped};

/// The two that the programs take.
const TWO: [&str; 2] = ["CAP_BPF", "CAP_PERFMON"];

/// Whether this kernel refuses all tracing, whoever asks.
fn locked_down() -> bool {
    fs::read_to_string("/sys/kernel/security/lockdown").is_ok_and(|text| text.contains("[confidentiality]"))
}

/// Runs it and looks at what it says of itself; `granted`: whether the programs may be attached.
async fn look(who: &str, place: &Place, command: Command, granted: bool) {
    let proxy = place.spawn(command);
    proxy.ready().await;
    let reply = place.call(LIST, |_| {}).await;
    reply.assert_ok(&reply.body);
    let status: Status = serde_json::from_str(&proxy.admin("/status").await).unwrap();
    let source = |name: &str| status.change_sources.iter().find(|source| source.name == name).unwrap();
    let ebpf = source("ebpf");
    println!("{who}: keeps {:?}", status.rights.capabilities);
    for ChangePart { name, state, reason, .. } in &ebpf.parts {
        println!("{who}: {name:32} {state} {}", reason.as_deref().unwrap_or_default());
    }
    let mkdir = ebpf.parts.iter().find(|part| part.name == "tp_btf/cgroup_mkdir").unwrap();
    let kept = |name: &&str| status.rights.capabilities.iter().any(|kept| kept == name);
    if granted {
        assert_eq!(mkdir.state, "attached", "{who}: {mkdir:?}");
        assert!(TWO.iter().all(kept), "{who}: kept to attach anew what is lost: {:?}", status.rights);
    } else {
        let said = format!("{mkdir:?}");
        let grant = if locked_down() { "lockdown=confidentiality" } else { "grant CAP_BPF and CAP_PERFMON" };
        assert!(mkdir.state == "refused" && said.contains(grant), "{who}: {said}");
        assert!(ebpf.parts.iter().all(|part| part.state != "attached" || part.name.starts_with("ring/")), "{who}: {ebpf:?}");
    }
    // They need nothing.
    let dirs = source("kubelet-dirs");
    assert!(["active", "degraded"].contains(&dirs.state.as_str()), "{who}: what may be read is watched: {dirs:?}");
    proxy.stop().await;
}

#[tokio::test]
async fn with_whatever_rights_it_serves_attaches_what_they_allow_and_tells_what_to_grant() {
    let place = Place::new();
    let kubelet = place.simulator(|_| {}).await;
    let flags = ["--cgroup-root", "/sys/fs/cgroup"];
    let own = capabilities(None).unwrap().effective;
    let granted = own.contains(CapabilitySet::BPF | CapabilitySet::PERFMON) && !locked_down();
    let own_name = format!("uid {} with {:?}", geteuid().as_raw(), own & (CapabilitySet::BPF | CapabilitySet::PERFMON));
    look(&own_name, &place, place.run(&flags), granted).await;
    if !geteuid().is_root() {
        return;
    }
    for shared in ["kubelet", "kubelet/pod-resources", "kubelet/pod-resources/kubelet.sock", "config.toml"] {
        fs::set_permissions(place.path(shared), Permissions::from_mode(0o777)).unwrap();
    }
    for made in ["proxy", "admin", "state"] {
        fs::remove_dir_all(place.path(made)).unwrap();
    }
    let plain = as_somebody(&place, &place.run(&flags), &["proxy", "admin", "state"]);
    fs::set_permissions(place.path("state"), Permissions::from_mode(0o700)).unwrap();
    let id = SOMEBODY.to_string();
    let mut two = Command::new("setpriv");
    two.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--inh-caps", "+bpf,+perfmon", "--ambient-caps", "+bpf,+perfmon"]);
    two.arg(plain.get_program());
    let two = wrapped(two, &plain);
    look("somebody", &place, plain, false).await;
    // busybox has one that cannot do this: there `cargo xtask vm --as` gives the rights.
    if setpriv_gives_capabilities() {
        look("somebody with the two", &place, two, granted).await;
    } else {
        assert!(
            std::env::var_os("CI").is_none() || std::path::Path::new("/bin/busybox").exists(),
            "setpriv (util-linux) is missing"
        );
        eprintln!("not tested without setpriv (util-linux): an ordinary user with CAP_BPF and CAP_PERFMON");
    }
    drop(kubelet);
}

fn setpriv_gives_capabilities() -> bool {
    let mut probe = Command::new("setpriv");
    probe.args(["--inh-caps", "+bpf", "--ambient-caps", "+bpf", "true"]);
    probe.output().is_ok_and(|output| output.status.success())
}
