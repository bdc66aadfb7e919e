//! The schema of `/status`, shared by the server that writes it and the command that reads it.
//!
//! A reader takes what it knows: missing fields get their defaults, unknown ones are passed over, so that command and server may differ
//! in version. Durations are seconds, times RFC 3339 in UTC, sizes bytes.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// All that one running proxy says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// Tells this run from every other; epochs mean something within it alone.
    pub instance: String,
    /// Since the start, in seconds.
    pub uptime_s: f64,
    /// `cache`, `shadow` or `passthrough`.
    pub mode: String,
    /// Where answers come from.
    pub source: Source,
    /// How fresh they are.
    pub freshness: Freshness,
    /// Where the kubelet and the host disagree; `None` where nobody compares them.
    pub drift: Option<Drift>,
    /// What the host source found last; `None` where it was never asked.
    pub host: Option<Host>,
    /// What tells us of changes, best first.
    pub change_sources: Vec<ChangeSource>,
    /// What is served; `None` before the first capture.
    pub snapshot: Option<Snapshot>,
    /// What survives a restart.
    pub saved: Saved,
    /// What we ask of the source.
    pub upstream: Upstream,
    /// Who asks us.
    pub clients: Clients,
    /// What they may have.
    pub rules: Rules,
    /// What this process may do.
    pub rights: Rights,
    /// Whether we are ready, and what is missing.
    pub readiness: Readiness,
}

/// Where answers come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Source {
    /// `kubelet` or `host`.
    pub kind: String,
    /// The kubelet's socket.
    pub socket: String,
    /// Whether the last try to reach it worked.
    pub reachable: bool,
    /// Since when `reachable` is as it is.
    pub since: Option<Timestamp>,
    /// The methods that the kubelet has answered since it started, and the versions that answer so.
    pub answers: Option<String>,
    /// The last call that failed, whether or not a later one worked.
    pub last_error: Option<String>,
}

/// Where the kubelet and the host disagree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Drift {
    /// Comparisons so far.
    pub comparisons: u64,
    /// What differs now, by kind.
    pub findings: Vec<String>,
}

/// What the host source found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// The kubepods cgroups, as paths below their hierarchy.
    pub kubepods: Vec<String>,
    /// Pods in answers.
    pub pods: u64,
    /// Pods that answers do not have.
    pub left_out: u64,
    /// CPUs that are online, as a list.
    pub online_cpus: String,
    /// CPUs that the scheduler leaves alone.
    pub isolated_cpus: String,
    /// Why no CPU is told as allocatable, where none is.
    pub no_allocatable_cpus: Option<String>,
    /// Devices by their CDI names; no answer has them.
    pub cdi_devices: Vec<String>,
    /// What was passed over, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// The first few of them.
    pub examples: Vec<String>,
}

/// How fresh the answers are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Freshness {
    /// Changes seen so far.
    pub epoch: u64,
    /// The epoch before which the snapshot's capture did not begin.
    pub snapshot_epoch: u64,
    /// Since the capture began, in seconds; `None` before the first.
    pub age_s: Option<f64>,
    /// Answers go out marked as stale.
    pub stale: bool,
}

/// One thing that tells us of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeSource {
    /// Which one: `ebpf`, `fanotify`, `kubepods`, `kubelet-dirs`, `pods-api` or `timer`.
    pub name: String,
    /// `active`, `degraded`, `refused` or `off`.
    pub state: String,
    /// What it watches, or why it does not.
    pub detail: String,
    /// Piece by piece.
    pub parts: Vec<ChangePart>,
}

/// A program, a mark, a directory, a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangePart {
    /// Which one.
    pub name: String,
    /// `attached`, `refused`, `absent` or `lost`.
    pub state: String,
    /// Why it is not attached, and what to grant.
    pub reason: Option<String>,
    /// Events that counted.
    pub events: u64,
    /// How often it was lost.
    pub losses: u64,
}

/// What is served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// Pods in List.
    pub pods: u64,
    /// Length of the List message.
    pub list_bytes: u64,
    /// Length of the `GetAllocatableResources` message; `None` where the kubelet does not offer it.
    pub allocatable_bytes: Option<u64>,
    /// Changes only when the content does.
    pub digest: String,
    /// When its capture began.
    pub captured_at: Option<Timestamp>,
    /// Pods (`namespace/name`) and devices that a restarted kubelet has not named again yet.
    pub kept_after_restart: Vec<String>,
    /// An earlier instance captured and saved it; the kubelet has not answered this one yet.
    pub saved_earlier: bool,
}

/// What survives a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    /// The state directory; `None`: nothing is kept.
    pub dir: Option<String>,
    /// When the snapshot, or its age, was written last.
    pub last_written: Option<Timestamp>,
    /// What keeps it from being written now.
    pub last_error: Option<String>,
    /// Why what an earlier instance left was not used.
    pub not_used: Option<String>,
}

/// What we ask of the source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Upstream {
    /// Calls so far.
    pub calls: u64,
    /// Calls that it refused by its rate limit.
    pub refused: u64,
    /// Calls that failed in any other way.
    pub failed: u64,
    /// Calls per second that we allow ourselves.
    pub rate: f64,
    /// Calls at once that we allow ourselves.
    pub burst: f64,
    /// Requests that wait for a capture now.
    pub waiting: u64,
}

/// Who asks us.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clients {
    /// Open now.
    pub connections: u64,
    /// Accepted so far.
    pub accepted: u64,
    /// Turned away so far.
    pub refused: u64,
    /// How often the kernel's queue of new connections was found full: others could not connect then, and are not counted.
    pub queue_full: u64,
    /// Requests answered so far, by method.
    pub requests: BTreeMap<String, u64>,
    /// `enforce`, `observe` or `off`.
    pub admission: String,
    /// What each may have, unless a rule says otherwise.
    pub limits: String,
    /// Clients that are connected, or cannot be forgotten yet.
    pub known: u64,
    /// Calls and connections over a limit, by which; where limits hold, they were refused.
    pub over_limit: BTreeMap<String, u64>,
    /// The clients that were refused most, then those that called most; `/clients` has more of them.
    pub top: Vec<Client>,
}

/// One client, as in `/clients`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    /// `pod:<uid>`, `unit:<name>`, `uid:<number>` or `departed`.
    pub client: String,
    /// `namespace/name`, where it is known.
    pub pod: Option<String>,
    /// The user that connected first.
    pub uid: u32,
    /// The process that connected first, where it can be seen.
    pub pid: Option<u32>,
    /// Its class, where the configuration file has one that takes it.
    pub class: Option<String>,
    /// What it may have.
    pub limits: String,
    /// Connections open now.
    pub connections: u64,
    /// Calls in flight now.
    pub in_flight: u64,
    /// Calls that have ended, refused ones included.
    pub calls: u64,
    /// Calls that it may make at once now.
    pub tokens: u64,
    /// Bytes of replies that wait until it reads them.
    pub waiting_bytes: u64,
    /// Calls and connections over a limit, by which.
    pub over_limit: BTreeMap<String, u64>,
    /// It is left unread now, because it went on although it was refused.
    pub paused: bool,
    /// How often it was.
    pub pauses: u64,
}

/// What clients may have, as the configuration file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The file that is watched for other rules.
    pub file: Option<String>,
    /// The classes' names, in their order.
    pub classes: Vec<String>,
    /// How often other rules were taken while we run.
    pub taken: u64,
    /// How often they were wrong, and refused.
    pub refused: u64,
    /// What is wrong with the file now; older rules are in force.
    pub error: Option<String>,
}

/// What this process may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rights {
    /// The effective user id.
    pub uid: u32,
    /// Effective capabilities, as `CAP_…`.
    pub capabilities: Vec<String>,
    /// Those that were dropped at the start.
    pub dropped: Vec<String>,
    /// Those that change sources would need, and that the process was not given.
    pub missing: Vec<String>,
    /// Whether no program that it might execute could have more.
    pub no_new_privs: bool,
}

/// Whether we are ready, and what is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Readiness {
    /// Nothing is waited for.
    pub ready: bool,
    /// Latches still held, oldest first.
    pub waiting_for: Vec<Waiting>,
    /// What is missing and does not block.
    pub notes: Vec<String>,
}

/// One latch that is still held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// What it stands for.
    pub name: String,
    /// Why it is not open yet, where known.
    pub reason: Option<String>,
}

/// A moment, written as RFC 3339 in UTC to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp(pub SystemTime);

// === impl Rights ===

impl Rights {
    /// Those of the calling thread.
    #[cfg(feature = "server")]
    pub fn current() -> Self {
        let effective = rustix::thread::capabilities(None).map(|sets| sets.effective);
        let capabilities =
            effective.iter().flat_map(rustix::thread::CapabilitySet::iter_names).map(|(name, _)| format!("CAP_{name}")).collect();
        let no_new_privs = rustix::thread::no_new_privs().unwrap_or_default();
        Self { uid: rustix::process::geteuid().as_raw(), capabilities, no_new_privs, ..Self::default() }
    }
}

// === impl Waiting ===

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.reason {
            Some(reason) => write!(f, "{}: {reason}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

// === impl Timestamp ===

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        humantime::format_rfc3339_millis(self.0).fmt(f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_rfc3339(&text).map(Self).map_err(|e| de::Error::custom(format!("{text:?} is no RFC 3339 time: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_reader_of_another_version_takes_what_it_knows() {
        let status: Status =
            serde_json::from_str(r#"{"version": "9", "source": {"kind": "host", "moon": 1}, "tides": []}"#).unwrap();
        let source = Source { kind: "host".into(), ..Source::default() };
        assert_eq!(status, Status { version: "9".into(), source, ..Status::default() });
    }

    #[test]
    fn times_are_rfc_3339_both_ways() {
        let moment = Timestamp(SystemTime::UNIX_EPOCH + Duration::from_millis(1_764_600_000_250));
        let text = serde_json::to_string(&moment).unwrap();
        assert_eq!(text, r#""2025-12-01T14:40:00.250Z""#);
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), moment);
        let error = serde_json::from_str::<Timestamp>(r#""yesterday""#).unwrap_err().to_string();
        assert!(error.starts_with(r#""yesterday" is no RFC 3339 time"#), "{error}");
    }

    #[test]
    #[cfg(feature = "server")]
    fn rights_name_capabilities_as_the_kernel_does() {
        let rights = Rights::current();
        let known = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let effective = known.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
        let bits = u64::from_str_radix(effective, 16).unwrap().count_ones();
        assert_eq!(rights.capabilities.len(), bits as usize, "{:?}", rights.capabilities);
        assert!(rights.capabilities.iter().all(|name| name.starts_with("CAP_")));
    }
}
