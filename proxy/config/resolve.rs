//! Flag over environment over file over default: from texts to one [`Config`], with where each value came from.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::args::Args;
use super::check;
use super::environment::Environment;
use super::error::{ConfigError, ConfigErrors, Origin};
use super::file::File;
use super::setting::{self, Default, Setting};
use super::value::{self, Read};
use super::{Admin, Clients, Config, Listen, Log, Upstream};

/// The directory, in a user's runtime directory, that `--demo` puts its sockets into.
const DEMO_DIR: &str = "podresources-proxy";
/// Demos at the same time that find a place by themselves.
const DEMOS: u32 = 16;
/// Any free port: two demos must not want the same.
const DEMO_ADDRESS: &str = "127.0.0.1:0";
/// The kubelet's own name for the directory of its socket.
const POD_RESOURCES: &str = "pod-resources";

/// What defaults depend on beside the table.
#[derive(Clone, Debug)]
pub struct Place {
    /// A directory for sockets that only this user may enter.
    pub runtime_dir: PathBuf,
    /// The directory for what is to survive a restart, where this user has one.
    pub state_dir: Option<PathBuf>,
    /// Whether somebody serves the socket at this path: a second demo goes beside the first.
    pub is_served: fn(&Path) -> bool,
}

/// A configuration, and how it came about.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// What holds.
    pub config: Config,
    /// Taken, and yet worth a word.
    pub warnings: Vec<String>,
    /// Each setting with its value and origin, in the table's order. `None`: unset.
    pub(super) shown: Vec<(&'static Setting, Option<String>, Origin)>,
}

struct Reader<'a> {
    args: &'a Args,
    environment: &'a Environment,
    file: Option<&'a File>,
    place: &'a Place,
    /// Under `--demo`: where its sockets go.
    demo: Option<PathBuf>,
    shown: Vec<(&'static Setting, Option<String>, Origin)>,
    errors: Vec<ConfigError>,
}

// === impl Resolved ===

impl Resolved {
    /// This configuration with the rules for clients that a newer one has: all that a running process takes of it. `clients.admission` is
    /// none of them: whether anybody looks who a client is, is settled at the start.
    #[must_use]
    pub fn with_rules_of(mut self, newer: Self) -> Self {
        let admission = self.config.clients.admission;
        self.config.clients = Clients { admission, ..newer.config.clients };
        self.config.classes = newer.config.classes;
        let is_rule = |setting: &Setting| setting.key.starts_with("clients.") && setting.key != setting::ADMISSION.key;
        for line in newer.shown.into_iter().filter(|(setting, ..)| is_rule(setting)) {
            if let Some(old) = self.shown.iter_mut().find(|(setting, ..)| setting.key == line.0.key) {
                *old = line;
            }
        }
        self
    }
}

// === impl Place ===

impl Place {
    /// That of this process: `XDG_RUNTIME_DIR`, or a directory in `/tmp` named after the user; and for root `/var/lib`, for others
    /// `XDG_STATE_HOME`.
    pub fn of_process() -> Self {
        let fallback = || PathBuf::from(format!("/tmp/podresources-proxy-{}", rustix::process::geteuid().as_raw()));
        let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let state_home = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let state_home = if rustix::process::geteuid().is_root() { Some(PathBuf::from("/var/lib")) } else { state_home };
        Self {
            runtime_dir: runtime_dir.unwrap_or_else(fallback),
            state_dir: state_home.map(|home| home.join("podresources-proxy")),
            is_served: |socket| std::os::unix::net::UnixStream::connect(socket).is_ok(),
        }
    }

    /// The directory of a demo: the first that no living demo is in or, to replace that, simply the first.
    fn demo_dir(&self, replace: bool) -> PathBuf {
        let first = self.runtime_dir.join(DEMO_DIR);
        let is_free = |dir: &PathBuf| DEMO_SOCKETS.iter().all(|(_, below)| !(self.is_served)(&dir.join(below)));
        let next = (2..=DEMOS).map(|nth| self.runtime_dir.join(format!("{DEMO_DIR}-{nth}")));
        let free = std::iter::once(first.clone()).chain(next).find(is_free);
        free.filter(|_| !replace).unwrap_or(first)
    }

    /// Makes sure of the directory: there, ours, and closed to others. In `/tmp` somebody else may have been there first.
    pub fn prepare(&self) -> io::Result<()> {
        let made = DirBuilder::new().mode(0o700).create(&self.runtime_dir);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(io::Error::new(error.kind(), format!("cannot make {}: {error}", self.runtime_dir.display())));
        }
        let found = std::fs::symlink_metadata(&self.runtime_dir)?;
        let ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o022 == 0;
        let refusal = || {
            let text = format!("{} is not a directory that this user alone may write to", self.runtime_dir.display());
            io::Error::new(io::ErrorKind::PermissionDenied, format!("{text}; set XDG_RUNTIME_DIR to one that is"))
        };
        if ours { Ok(()) } else { Err(refusal()) }
    }
}

/// Reads every setting; names everything that is wrong, not only the first.
pub fn resolve(args: &Args, environment: &Environment, file: Option<&File>, place: &Place) -> Result<Resolved, ConfigErrors> {
    let mut reader = Reader { args, environment, file, place, demo: None, shown: Vec::new(), errors: Vec::new() };
    let demo = reader.read(&setting::DEMO, value::switch);
    if demo == Some(true) {
        // Looked at beforehand; whatever is wrong with it is told when its turn comes.
        let replace = reader.find(&setting::REPLACE).and_then(|(text, _)| value::switch(&text).ok());
        reader.demo = Some(place.demo_dir(replace == Some(true)));
    }
    let config = reader.config(demo);
    let Reader { mut shown, mut errors, .. } = reader;
    let Some(config) = config.filter(|_| errors.is_empty()) else { return Err(ConfigErrors(errors)) };
    check::conflicts(&config, &mut errors);
    if !errors.is_empty() {
        return Err(ConfigErrors(errors));
    }
    let warnings = check::warnings(&config, environment);
    shown.sort_by_key(|(shown, ..)| setting::ALL.iter().position(|setting| setting.key == shown.key));
    Ok(Resolved { config, warnings, shown })
}

// === impl Reader ===

impl Reader<'_> {
    /// `None` where something could not be read: then `errors` says what. Reads on after an error, to find them all.
    fn config(&mut self, demo: Option<bool>) -> Option<Config> {
        let socket = self.read(&setting::KUBELET_SOCKET, value::socket);
        let above = socket.as_ref().map(|socket| kubelet_dir(socket.as_path()));
        let kubelet_dir = self.read_or(&setting::KUBELET_DIR, value::dir, above);
        let source = self.read(&setting::SOURCE, value::source);
        let failover = self.read(&setting::FAILOVER, value::failover);
        let partial_host_answers = self.read(&setting::HOST_ANSWERS, value::host_answers);
        let drift_check = self.read(&setting::DRIFT_CHECK, value::time_or_off);
        let reserved_cpus = self.read_unset(&setting::RESERVED_CPUS, value::cpus);
        let kubelet_config =
            self.read_or(&setting::KUBELET_CONFIG, value::dir, kubelet_dir.as_ref().map(|dir| dir.join("config.yaml")));
        let bundle_dirs = self.read(&setting::BUNDLE_DIRS, value::dirs);
        let max_reply = self.read(&setting::MAX_REPLY, value::size);
        let rate = self.read(&setting::UPSTREAM_RATE, value::rate);
        let burst = self.read(&setting::UPSTREAM_BURST, value::burst);
        let max_stale = self.read(&setting::MAX_STALE, value::time);
        let restart_settle = self.read(&setting::RESTART_SETTLE, value::time);
        let refresh_interval = self.read(&setting::REFRESH_INTERVAL, value::time_above_zero);
        let state_dir = self.state_dir();
        let change_sources = self.read(&setting::CHANGE_SOURCES, value::change_sources);
        let pod_logs_dir = self.read(&setting::POD_LOGS_DIR, value::dir);
        let cgroup_root = self.read(&setting::CGROUP_ROOT, value::dir);
        let listen = self.read(&setting::LISTEN_SOCKET, value::socket);
        let mode = self.read(&setting::SOCKET_MODE, value::mode);
        let owner = self.read_unset(&setting::SOCKET_OWNER, value::user);
        let group = self.read_unset(&setting::SOCKET_GROUP, value::group);
        let replace = self.read(&setting::REPLACE, value::switch);
        let grace = self.read(&setting::GRACE, value::time);
        let threads = self.read_unset(&setting::THREADS, value::count);
        let max_connections = self.read(&setting::MAX_CONNECTIONS, value::count);
        let admission = self.read(&setting::ADMISSION, value::admission);
        let client_rate = self.read(&setting::CLIENT_RATE, value::rate);
        let client_burst = self.read(&setting::CLIENT_BURST, value::burst);
        let client_connections = self.read(&setting::CLIENT_CONNECTIONS, value::burst);
        let client_calls = self.read(&setting::CLIENT_CALLS, value::burst);
        let client_waiting = self.read(&setting::CLIENT_WAITING, value::size);
        let admin_address = self.read(&setting::ADMIN_ADDRESS, value::address_or_off);
        let admin_socket = self.read(&setting::ADMIN_SOCKET, value::socket_or_off);
        let format = self.read(&setting::LOG_FORMAT, value::log_format);
        let level = self.read(&setting::LOG_LEVEL, value::log_level);
        Some(Config {
            upstream: Upstream {
                socket: socket?,
                kubelet_dir: kubelet_dir?,
                max_reply: max_reply?,
                rate: rate?,
                burst: burst?,
                max_stale: max_stale?,
                restart_settle: restart_settle?,
                refresh_interval: refresh_interval?,
                state_dir: state_dir?,
                change_sources: change_sources?,
                pod_logs_dir: pod_logs_dir?,
                cgroup_root: cgroup_root?,
                source: source?,
                failover: failover?,
                partial_host_answers: partial_host_answers?,
                drift_check: drift_check?,
                reserved_cpus,
                kubelet_config: kubelet_config?,
                bundle_dirs: bundle_dirs?,
            },
            listen: Listen {
                socket: listen?,
                mode: mode?,
                owner,
                group,
                replace: replace?,
                grace: grace?,
                threads,
                max_connections: max_connections?,
            },
            clients: Clients {
                admission: admission?,
                rate: client_rate?,
                burst: client_burst?,
                connections: client_connections?,
                calls: client_calls?,
                waiting_bytes: client_waiting?,
            },
            classes: self.file.map(|file| file.classes().to_vec()).unwrap_or_default(),
            admin: Admin { address: admin_address?, socket: admin_socket? },
            log: Log { format: format?, level: level? },
            demo: demo?,
        })
    }

    /// The text that holds, and where it came from.
    fn find(&self, setting: &'static Setting) -> Option<(String, Origin)> {
        if let Some(text) = self.args.get(setting) {
            return Some((text.to_owned(), Origin::Flag(setting.flag)));
        }
        if let Some(text) = self.environment.get(setting) {
            return Some((text.to_owned(), Origin::Env(setting.env())));
        }
        if let Some((file, (text, line))) = self.file.and_then(|file| Some((file, file.get(setting)?))) {
            return Some((text.to_owned(), Origin::File { path: file.path.clone(), line }));
        }
        if let Some(text) = self.demo.as_ref().and_then(|dir| demo_default(setting, dir)) {
            return Some((text, Origin::Demo));
        }
        match setting.default {
            Default::Is(text) => Some((text.to_owned(), Origin::Default)),
            Default::Unset(_) => None,
        }
    }

    /// A setting that always has a value.
    fn read<T>(&mut self, setting: &'static Setting, read: impl Fn(&str) -> Read<T>) -> Option<T> {
        let (text, origin) = self.find(setting)?;
        let value = read(&text);
        self.shown.push((setting, Some(text.clone()), origin.clone()));
        value.map_err(|reason| self.errors.push(ConfigError::Value { origin, key: setting.key, value: text, reason })).ok()
    }

    /// A setting that may stay unset.
    fn read_unset<T>(&mut self, setting: &'static Setting, read: impl Fn(&str) -> Read<T>) -> Option<T> {
        if self.find(setting).is_none() {
            self.shown.push((setting, None, Origin::Default));
            return None;
        }
        self.read(setting, read)
    }

    /// Where nobody sets it, the user's own, or none; a demo leaves nothing behind.
    #[expect(clippy::option_option, reason = "outside: whether it could be read; inside: whether there is one")]
    fn state_dir(&mut self) -> Option<Option<PathBuf>> {
        let setting = &setting::STATE_DIR;
        if self.find(setting).is_some() {
            return self.read(setting, value::dir_or_off);
        }
        let (dir, origin) = match &self.demo {
            Some(_) => (None, Origin::Demo),
            None => (self.place.state_dir.clone(), Origin::Default),
        };
        let text = dir.as_ref().map_or_else(|| "off".to_owned(), |dir| dir.display().to_string());
        self.shown.push((setting, Some(text), origin));
        Some(dir)
    }

    /// A path that follows from another one where nobody sets it.
    fn read_or(
        &mut self,
        setting: &'static Setting,
        read: impl Fn(&str) -> Read<PathBuf>,
        derived: Option<PathBuf>,
    ) -> Option<PathBuf> {
        if self.find(setting).is_none() {
            self.shown.push((setting, derived.as_ref().map(|path| path.display().to_string()), Origin::Derived));
            return derived;
        }
        self.read(setting, read)
    }
}

/// The directory above the kubelet's `pod-resources`; a socket elsewhere: its own directory.
fn kubelet_dir(socket: &Path) -> PathBuf {
    let dir = socket.parent().unwrap_or(Path::new("/"));
    match dir.parent() {
        Some(above) if dir.ends_with(POD_RESOURCES) => above.to_owned(),
        _ => dir.to_owned(),
    }
}

/// Where `--demo` puts its sockets: ours, the stand-in's in a kubelet directory of its own, and the admin socket where no client looks.
const DEMO_SOCKETS: [(&Setting, &str); 3] = [
    (&setting::LISTEN_SOCKET, "kubelet.sock"),
    (&setting::KUBELET_SOCKET, "demo/pod-resources/kubelet.sock"),
    (&setting::ADMIN_SOCKET, "admin/admin.sock"),
];

/// What holds under `--demo` where nobody sets it.
fn demo_default(setting: &Setting, dir: &Path) -> Option<String> {
    if setting.key == setting::ADMIN_ADDRESS.key {
        return Some(DEMO_ADDRESS.to_owned());
    }
    let (_, below) = DEMO_SOCKETS.iter().find(|(socket, _)| socket.key == setting.key)?;
    Some(dir.join(below).display().to_string())
}
