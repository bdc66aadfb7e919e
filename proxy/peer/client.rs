//! What a client is: the unit of fairness, of limits and of refusals.

use std::fmt;
use std::sync::Arc;

use crate::kubepods::PodUid;
use crate::snapshot::PodName;

/// To whom a connection is put down. However many connections and processes it has, a pod is one client, and so is a unit.
///
/// Cheap to clone, compare and hash; what it is can be told from the kernel's own words alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// A pod, by the cgroup of the process that connected.
    Pod {
        /// The pod's uid.
        uid: PodUid,
    },
    /// A systemd unit of the host, such as `kubelet.service`. What a user runs in sessions is all of one, `user-1000.slice`.
    Unit(Unit),
    /// A user, where the process has neither pod nor unit, or its cgroup cannot be seen.
    Uid(u32),
    /// Those who were gone before it could be told who they were. They are all one client.
    Departed,
}

/// A systemd unit's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unit(Arc<str>);

/// A container's id in its runtime.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContainerId(Arc<str>);

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// To whom the connection is put down.
    pub client: Client,
    /// The process that connected, in our pid namespace; `None` where that cannot see it (no hostPID).
    pub pid: Option<u32>,
    /// The effective user of that process when it connected, in our user namespace.
    pub uid: u32,
    /// The container that the process is in, where it is in one of a pod's.
    pub container: Option<ContainerId>,
    /// The pod's namespace and name, where they are known already.
    pub pod: Option<Arc<PodName>>,
}

// === impl Client ===

impl fmt::Display for Client {
    /// One printable ASCII word, as it goes into logs, metadata and metrics: `pod:<32 digits>`, `unit:kubelet.service`, `uid:1000`,
    /// `departed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { uid } => write!(f, "pod:{uid}"),
            Self::Unit(unit) => write!(f, "unit:{unit}"),
            Self::Uid(uid) => write!(f, "uid:{uid}"),
            Self::Departed => f.write_str("departed"),
        }
    }
}

// === impl Unit ===

impl Unit {
    /// A unit of this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Its name, as in the cgroup path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printable(&self.0, f)
    }
}

// === impl ContainerId ===

impl ContainerId {
    /// A container of this id.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The id, as in the cgroup path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        printable(&self.0, f)
    }
}

/// A cgroup's name may hold any byte but `/` and the line's end; what is shown is printable ASCII.
fn printable(name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    use fmt::Write;
    name.chars().try_for_each(|c| f.write_char(if c.is_ascii_graphic() { c } else { '?' }))
}

// === impl Peer ===

impl Peer {
    /// Somebody of whom only the user is known.
    pub fn of_uid(uid: u32) -> Self {
        Self { client: Client::Uid(uid), pid: None, uid, container: None, pod: None }
    }

    /// Somebody who was gone before we looked.
    pub fn departed(uid: u32) -> Self {
        Self { client: Client::Departed, ..Self::of_uid(uid) }
    }
}

impl fmt::Display for Peer {
    /// As [`Client`], but a pod of a known name by that: `pod:kube-system/dns-1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pod {
            Some(pod) => write!(f, "pod:{}/{}", pod.namespace, pod.name),
            None => self.client.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_shown_as_one_printable_word() {
        let uid = PodUid::parse("01234567-89ab-cdef-0123-456789abcdef").unwrap();
        let shown = |client: Client| client.to_string();
        assert_eq!(shown(Client::Pod { uid }), "pod:0123456789abcdef0123456789abcdef");
        assert_eq!(shown(Client::Unit(Unit::new("kubelet.service"))), "unit:kubelet.service");
        assert_eq!(shown(Client::Unit(Unit::new("a b\nc\u{e9}.service"))), "unit:a?b?c?.service");
        assert_eq!(shown(Client::Uid(1000)), "uid:1000");
        assert_eq!(shown(Client::Departed), "departed");
    }

    #[test]
    fn a_pod_of_known_name_is_shown_by_it() {
        let uid = PodUid::parse("0123456789abcdef0123456789abcdef").unwrap();
        let pod = PodName { namespace: "kube-system".into(), name: "dns-1".into() };
        let peer = Peer { client: Client::Pod { uid }, pod: Some(Arc::new(pod)), ..Peer::of_uid(0) };
        assert_eq!(peer.to_string(), "pod:kube-system/dns-1");
    }
}
