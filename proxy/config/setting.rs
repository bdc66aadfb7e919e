//! The one table of settings. Flags, environment variables, keys of the file, help and `config show` all come from it.

/// Begins each environment variable.
pub const ENV_PREFIX: &str = "PODRESOURCES_PROXY_";

/// One thing that a user can set, in three ways.
#[derive(Debug)]
pub struct Setting {
    /// The key in the file: `section.name`, or `name` at the top.
    pub key: &'static str,
    /// The flag, without its dashes. The environment variable is named after it.
    pub flag: &'static str,
    /// What the value is called in help.
    pub value: &'static str,
    /// How the value is written in the file.
    pub kind: Kind,
    /// What holds when nobody sets it.
    pub default: Default,
    /// One line of help.
    pub help: &'static str,
    /// Further lines, for `--help`.
    pub more: &'static str,
}

/// How a value is written in the file. All three may also be given as a string there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A string.
    Text,
    /// A number.
    Number,
    /// `true` or `false`; the flag alone means `true`.
    Switch,
}

/// What holds when nobody sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// This value.
    Is(&'static str),
    /// Nothing: the text says what that means.
    Unset(&'static str),
}

macro_rules! settings {
    ($($name:ident = $key:literal, $flag:literal, $value:literal, $kind:ident, $default:expr, $help:literal, $more:literal;)*) => {
        $(
            #[doc = $help]
            pub const $name: Setting = Setting {
                key: $key, flag: $flag, value: $value, kind: Kind::$kind, default: $default, help: $help, more: $more,
            };
        )*
        /// Every setting, in the order of help and of `config show`.
        pub const ALL: &[Setting] = &[$($name),*];
    };
}

use self::Default::{Is, Unset};

settings! {
    KUBELET_SOCKET = "upstream.socket", "kubelet-socket", "PATH", Text, Is("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "The kubelet's podresources socket",
        "A path or unix:///path. Need not exist yet: the proxy waits for it.";
    KUBELET_DIR = "upstream.kubelet_dir", "kubelet-dir", "DIR", Text, Unset("the directory above the socket's pod-resources"),
        "The kubelet's root directory",
        "Its state files are watched for changes; their content is never read.";
    SOURCE = "upstream.source", "source", "SOURCE", Text, Is("auto"),
        "Where answers come from: auto, kubelet or host",
        "host: cgroups and sysfs, without devices. auto takes the kubelet where its directory is, and the host where there is none.";
    FAILOVER = "upstream.failover", "failover", "SOURCE", Text, Is("off"),
        "Whether the host stands in for a kubelet that does not answer: off or host",
        "After --max-stale without an answer, or at once with PUT /source at the admin socket. Devices stay as the kubelet told them last.";
    MAX_REPLY = "upstream.max_reply", "max-reply", "SIZE", Text, Is("64MiB"),
        "The largest reply taken from the kubelet",
        "A larger one is an error, and the last good answer stays.";
    UPSTREAM_RATE = "upstream.rate", "upstream-rate", "CALLS/S", Text, Is("20/s"),
        "Calls a second that the kubelet is asked at most",
        "The kubelet grants all its callers together 100 a second.";
    UPSTREAM_BURST = "upstream.burst", "upstream-burst", "CALLS", Number, Is("4"),
        "Calls at once after a quiet time",
        "The kubelet grants all its callers together 10 at once.";
    MAX_STALE = "upstream.max_stale", "max-stale", "TIME", Text, Is("5m"),
        "How old an answer may be while the kubelet cannot be reached",
        "After that, callers get UNAVAILABLE with a text that says since when.";
    RESTART_SETTLE = "upstream.restart_settle", "restart-settle", "TIME", Text, Is("60s"),
        "How long a pod that a restarted kubelet does not name yet is kept",
        "Only for pods whose cgroups cannot be seen; else the cgroup decides.";
    REFRESH_INTERVAL = "upstream.refresh_interval", "refresh-interval", "TIME", Text, Is("10s"),
        "How often the kubelet is asked with nothing to show that something changed",
        "Changes that can be seen are asked for at once.";
    STATE_DIR = "upstream.state_dir", "state-dir", "DIR", Text, Unset("/var/lib/podresources-proxy as root; else podresources-proxy in XDG_STATE_HOME, or off; off with --demo"),
        "Where the last good snapshot is kept over a restart, or off",
        "For this user alone (0700): never a directory that clients mount. It is made if it is missing.";
    CHANGE_SOURCES = "upstream.change_sources", "change-sources", "LIST", Text, Is("ebpf,fanotify,kubepods,kubelet-dirs,pods-api,timer"),
        "What is to tell of changes; those that cannot be had here are passed over",
        "status says which of them work. docs/CHANGES.md says what each sees, needs and costs.";
    POD_LOGS_DIR = "upstream.pod_logs_dir", "pod-logs-dir", "DIR", Text, Is("/var/log/pods"),
        "The kubelet's directory of pod logs",
        "Its names tell which cgroup belongs to which pod.";
    CGROUP_ROOT = "upstream.cgroup_root", "cgroup-root", "DIR", Text, Is("/sys/fs/cgroup"),
        "Where the cgroup file systems are mounted",
        "";
    BUNDLE_DIRS = "host.bundle_dirs", "bundle-dirs", "DIRS", Text, Is("/run/containerd/io.containerd.runtime.v2.task/k8s.io,/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io,/run/containers/storage/overlay-containers,/var/lib/containers/storage/overlay-containers"),
        "Where container runtimes keep their bundles, separated by commas",
        "For the host source: they tell which cgroup is which container.";
    HOST_ANSWERS = "host.answers", "host-answers", "WHICH", Text, Is("whole"),
        "With --failover host: whole, or partial answers too",
        "partial: the host stands in also where no kubelet has told of devices yet, and answers have none.";
    DRIFT_CHECK = "host.drift_check", "drift-check", "TIME", Text, Is("10s"),
        "How often the kubelet's view is compared with the host's, or off",
        "After a change it is compared anyway, every 2s at most. The log, status and the metric podresources_proxy_drift say what differs.";
    RESERVED_CPUS = "host.reserved_cpus", "reserved-cpus", "CPUS", Text, Unset("what the kubelet's configuration reserves"),
        "CPUs that no pod can have alone, such as 0-1,8",
        "For the host source. An empty list: there are none.";
    KUBELET_CONFIG = "host.kubelet_config", "kubelet-config", "FILE", Text, Unset("config.yaml in the kubelet's directory"),
        "The kubelet's configuration file",
        "For the host source: CPUs and memory that it reserves. Need not exist.";
    LISTEN_SOCKET = "listen.socket", "listen-socket", "PATH", Text, Is("/run/podresources-proxy/kubelet.sock"),
        "The socket that clients call",
        "A path or unix:///path. Its directory is what pods mount; it is made if it is missing.";
    SOCKET_MODE = "listen.mode", "socket-mode", "MODE", Text, Is("0660"),
        "Permission bits of that socket, in octal",
        "Who may write to the socket may call it.";
    SOCKET_OWNER = "listen.owner", "socket-owner", "USER", Text, Unset("the process's own user"),
        "Owner of that socket, a name or a number",
        "";
    SOCKET_GROUP = "listen.group", "socket-group", "GROUP", Text, Unset("the process's own group"),
        "Group of that socket, a name or a number",
        "";
    REPLACE = "listen.replace", "replace", "BOOL", Switch, Is("false"),
        "Take the socket over from a running proxy",
        "Its first answer is fetched before that; the old process sees it, finishes what it has and ends. For upgrades without a refused call.";
    GRACE = "listen.grace", "grace", "TIME", Text, Is("5s"),
        "How long calls in flight may take to finish after SIGTERM",
        "";
    THREADS = "listen.threads", "threads", "COUNT", Number, Unset("one for each CPU that the process may use"),
        "Serving threads at most",
        "";
    MAX_CONNECTIONS = "listen.max_connections", "max-connections", "COUNT", Number, Is("4096"),
        "Connections open at a time, of all clients together",
        "One in 16 is kept for clients that have none yet, one in 64 for uid 0.";
    ADMISSION = "clients.admission", "admission", "MODE", Text, Is("enforce"),
        "Whether limits hold: enforce, observe or off",
        "observe counts what would be refused and serves it; off does not even look who a client is.";
    CLIENT_RATE = "clients.rate", "client-rate", "CALLS/S", Text, Is("100/s"),
        "Calls a second that each client may make in the long run",
        "A client is a pod, a systemd unit or a user, however many connections and processes it has.";
    CLIENT_BURST = "clients.burst", "client-burst", "CALLS", Number, Is("100"),
        "Calls that each client may make at once after a quiet time",
        "";
    CLIENT_CONNECTIONS = "clients.connections", "client-connections", "COUNT", Number, Is("128"),
        "Connections that each client may have open",
        "More are closed before their first byte is read.";
    CLIENT_CALLS = "clients.calls", "client-calls", "COUNT", Number, Is("256"),
        "Calls that each client may have in flight, over all its connections",
        "On one connection there are at most 32, as HTTP/2 tells every client.";
    CLIENT_WAITING = "clients.waiting", "client-waiting", "SIZE", Text, Is("16MiB"),
        "Bytes of replies that may wait until a client reads them",
        "A single reply may be larger.";
    ADMIN_ADDRESS = "admin.address", "admin-address", "ADDRESS", Text, Is("127.0.0.1:9510"),
        "Address of /healthz, /readyz and /metrics, or off",
        "";
    ADMIN_SOCKET = "admin.socket", "admin-socket", "PATH", Text, Is("/run/podresources-proxy-admin/admin.sock"),
        "Unix socket of /status, /config and /loglevel, or off",
        "For root alone: keep it in a directory that no client mounts.";
    LOG_FORMAT = "log.format", "log-format", "FORMAT", Text, Is("text"),
        "How log lines look: text or json",
        "";
    LOG_LEVEL = "log.level", "log-level", "LEVEL", Text, Is("info"),
        "Which log lines are written: off, error, warn, info, debug or trace",
        "By module, too: info,podresources_proxy::refresh=debug";
    DEMO = "demo", "demo", "BOOL", Switch, Is("false"),
        "Put a built-in node of 110 pods behind the proxy; needs no kubelet and no root",
        "Sockets go under the user's runtime directory unless they are set, a second demo's beside the first's.";
}

// === impl Setting ===

impl Setting {
    /// The environment variable: `PODRESOURCES_PROXY_` and the flag in capitals.
    pub fn env(&self) -> String {
        format!("{ENV_PREFIX}{}", self.flag.replace('-', "_").to_uppercase())
    }

    /// The default as text; empty where there is none.
    pub const fn default_text(&self) -> &'static str {
        match self.default {
            Is(text) => text,
            Unset(_) => "",
        }
    }

    /// The help line with what holds by default, where else it can be set, and the further lines.
    pub fn long_help(&self) -> String {
        let default = match self.default {
            Is(value) => format!("Default: {value}"),
            Unset(meaning) => format!("Default: {meaning}"),
        };
        let more = if self.more.is_empty() { String::new() } else { format!("{}\n", self.more) };
        format!("{}\n{more}{default}. Environment: {}. Key: {}", self.help, self.env(), self.key)
    }
}
