//! What a cgroup directly in a pod's is: a container or sandbox by its name, a monitor, or something else. Pure.

/// A cgroup directly in a pod's cgroup, told by its name alone. Containers and sandboxes look the same here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child<'a> {
    /// A container or sandbox with the runtime's id for it.
    Container(&'a str),
    /// CRI-O's monitor of a container, in a cgroup beside it.
    Monitor,
    /// Nothing that a runtime makes.
    Other,
}

/// How many hexadecimal digits a container's id has, in every runtime that speaks CRI.
const ID_LEN: usize = 64;

// === impl Child ===

impl<'a> Child<'a> {
    /// Reads a directory name: `<id>` (cgroupfs driver), `cri-containerd-<id>.scope`, `crio-<id>.scope`, `docker-<id>.scope` (systemd
    /// driver), `crio-conmon-<id>.scope`.
    #[must_use]
    pub fn of_pod(name: &'a str) -> Self {
        let name = name.strip_suffix(".scope").unwrap_or(name);
        let (prefix, id) = name.rsplit_once('-').unwrap_or(("", name));
        if id.len() != ID_LEN || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Self::Other
        } else if prefix.ends_with("conmon") {
            Self::Monitor
        } else {
            Self::Container(id)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn every_runtimes_name_for_a_containers_cgroup_gives_its_id() {
        for name in ["", "cri-containerd-", "crio-", "docker-"] {
            let (scope, plain) = (format!("{name}{ID}.scope"), format!("{name}{ID}"));
            assert_eq!(Child::of_pod(&scope), Child::Container(ID));
            assert_eq!(Child::of_pod(&plain), Child::Container(ID));
        }
    }

    #[test]
    fn cri_os_monitor_is_no_container() {
        assert_eq!(Child::of_pod(&format!("crio-conmon-{ID}.scope")), Child::Monitor);
        assert_eq!(Child::of_pod(&format!("crio-conmon-{ID}")), Child::Monitor);
    }

    #[test]
    fn anything_else_is_something_else() {
        for name in ["", "-", "container", "crio-.scope", "cri-containerd-0123.scope", "system.slice", &ID[1..], &format!("{ID}0")]
        {
            assert_eq!(Child::of_pod(name), Child::Other, "{name}");
        }
    }
}
