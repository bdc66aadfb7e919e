//! The file systems of a node.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, chroot, symlink};
use std::path::Path;

use anyhow::{Context as _, Result};
use rustix::mount::{MountFlags, mount as mount_at, mount_bind, mount_move};
use vm_guest::{Cgroups, SCRATCH};

const CGROUP: &str = "/sys/fs/cgroup";

/// Gives the guest a root that can be left: a container's `pivot_root` is refused below the very first one.
pub(crate) fn root() -> Result<()> {
    fs::create_dir_all("/new").context("cannot create /new")?;
    mount_bind("/", "/new").context("cannot bind / to /new")?;
    std::env::set_current_dir("/new")?;
    mount_move("/new", "/").context("cannot move /new to /")?;
    chroot(".").context("cannot enter the new root")?;
    std::env::set_current_dir("/").context("cannot enter /")
}

/// What every machine has. The file systems for tracing are optional: a kernel without one is something to test on.
pub(crate) fn machine() -> Result<()> {
    mount("proc", "/proc", "")?;
    mount("sysfs", "/sys", "")?;
    mount("devtmpfs", "/dev", "")?;
    mount("devpts", "/dev/pts", "ptmxmode=0666")?;
    for (at, options) in [("/dev/shm", "mode=1777"), ("/run", "mode=0755"), (SCRATCH, "mode=1777")] {
        mount("tmpfs", at, options)?;
    }
    for (kind, at) in [
        ("securityfs", "/sys/kernel/security"),
        ("tracefs", "/sys/kernel/tracing"),
        ("debugfs", "/sys/kernel/debug"),
        ("bpf", "/sys/fs/bpf"),
    ] {
        if let Err(error) = mount(kind, at, "") {
            eprintln!("vm-init: {error:#}");
        }
    }
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(target, Path::new("/dev").join(name)).with_context(|| format!("cannot link /dev/{name}"))?;
    }
    // Not a mount: the program may lie below it.
    fs::set_permissions("/tmp", fs::Permissions::from_mode(0o1777)).context("cannot open /tmp to all")?;
    // A container's mounts may come back to the node, as systemd has it.
    rustix::mount::mount_change("/", rustix::mount::MountPropagationFlags::SHARED | rustix::mount::MountPropagationFlags::REC)
        .context("cannot share the mounts")
}

/// The cgroup hierarchies, as a node's first process leaves them, their tops given to this user: a program makes cgroups there, whoever it is.
pub(crate) fn cgroups(which: Cgroups, user: u32) -> Result<()> {
    hierarchies(which)?;
    let tops = fs::read_dir(CGROUP)?.flatten().map(|entry| entry.path()).chain([CGROUP.into()]);
    for top in tops.filter(|top| top.join("cgroup.procs").exists()) {
        // Its mode lets nobody write, which only root may overlook.
        fs::set_permissions(&top, fs::Permissions::from_mode(0o755)).with_context(|| format!("cannot open {}", top.display()))?;
        for given in
            [top.clone(), top.join("cgroup.procs"), top.join("cgroup.subtree_control")].into_iter().filter(|path| path.exists())
        {
            chown(&given, Some(user), Some(user)).with_context(|| format!("cannot give {} away", given.display()))?;
        }
    }
    Ok(())
}

fn hierarchies(which: Cgroups) -> Result<()> {
    if which == Cgroups::V2 {
        mount("cgroup2", CGROUP, "")?;
        let controllers = fs::read_to_string(Path::new(CGROUP).join("cgroup.controllers"))?;
        let enable: Vec<_> = controllers.split_whitespace().map(|name| format!("+{name}")).collect();
        return fs::write(Path::new(CGROUP).join("cgroup.subtree_control"), enable.join(" "))
            .context("cannot enable the controllers");
    }
    mount("tmpfs", CGROUP, "mode=0755")?;
    for controller in controllers(&fs::read_to_string("/proc/cgroups")?) {
        // Newer kernels may know one in the unified hierarchy alone.
        if let Err(error) = mount("cgroup", &format!("{CGROUP}/{controller}"), &controller) {
            eprintln!("vm-init: {error:#}");
        }
    }
    mount("cgroup", &format!("{CGROUP}/systemd"), "none,name=systemd")?;
    if which == Cgroups::Hybrid {
        mount("cgroup2", &format!("{CGROUP}/unified"), "")?;
    }
    Ok(())
}

/// The enabled ones of `/proc/cgroups`: name, hierarchy, number of cgroups, enabled.
fn controllers(table: &str) -> Vec<String> {
    let rows = table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.get(3) == Some(&"1")).filter_map(|row| row.first().map(|name| (*name).to_owned())).collect()
}

fn mount(kind: &str, at: &str, options: &str) -> Result<()> {
    // Some are folders that the kernel made, others lie in a file system that takes no folders.
    if !Path::new(at).exists() {
        fs::create_dir_all(at).with_context(|| format!("cannot create {at}"))?;
        fs::set_permissions(at, fs::Permissions::from_mode(0o755))?;
    }
    let data = CString::new(options)?;
    let data = (!options.is_empty()).then_some(data.as_c_str());
    mount_at(kind, at, kind, MountFlags::empty(), data).with_context(|| format!("cannot mount {kind} at {at} ({options})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disabled_controller_is_not_mounted() {
        let table = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\nmemory\t0\t1\t0\ncpu\t0\t1\t1\n";
        assert_eq!(controllers(table), ["cpuset", "cpu"]);
    }
}
