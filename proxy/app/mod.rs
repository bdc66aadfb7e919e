//! Puts the parts together: binds early, serves later, drains on a signal.

mod clients;
mod drift;
mod host;
mod metrics;
mod refreshing;
mod reload;
mod report;
mod sources;
mod watching;

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use self::reload::{Load, Loaded, Reload, Rulebook};
use crate::change::{Epoch, Layout, Sources, Watched};
use crate::config::{ChangeSource, Source};
use crate::peer::Resolver;
use crate::refresh::{self, Handle};
use crate::rights::{self, Rights, RightsError};
use crate::source::{self, Host};
use crate::{admin, admission, keep, serve};

/// The thread that refreshes has to show itself this often: its longest work without an await is building a snapshot.
const REFRESHER_BEAT: Duration = Duration::from_secs(5);

/// How often clients that have gone are looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What readiness says once a client has come that we cannot see.
const NO_HOST_PID: &str = "some clients run in pid namespaces that this process does not see: they are told apart by user alone, and \
    pods of one user share its limits; give the proxy's pod hostPID: true";

/// All that a running proxy goes by, as sub-configs of its parts.
#[derive(Clone, Debug)]
pub struct Config {
    /// The kubelet's socket and root directory.
    pub kubelet: Layout,
    /// Which source is asked.
    pub source: Source,
    /// The host stands in for a kubelet that does not answer.
    pub failover: Option<source::failover::Config>,
    /// How often the kubelet's view is compared with the host's; `None`: never.
    pub drift_check: Option<Duration>,
    /// Where the host source reads.
    pub host: source::host::Config,
    /// What is to tell of changes.
    pub change_sources: Vec<ChangeSource>,
    /// The largest reply taken from the kubelet, in bytes.
    pub max_reply: usize,
    /// When the kubelet is asked.
    pub refresh: refresh::Config,
    /// What survives a restart.
    pub keep: keep::Config,
    /// The socket that clients call.
    pub serve: serve::Config,
    /// What each of them may have.
    pub admission: admission::Config,
    /// Classes of clients, in their order.
    pub classes: Vec<crate::config::Class>,
    /// Where limits and classes are read anew; `None`: never.
    pub reload: Option<Reload>,
    /// Health, metrics, status.
    pub admin: admin::Config,
    /// The configuration as text, for the admin socket.
    pub shown: String,
}

/// Why the proxy cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The admin server's address or socket.
    #[error(transparent)]
    Admin(#[from] admin::Error),
    /// The socket that clients call.
    #[error(transparent)]
    Socket(#[from] serve::SocketError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] keep::DirError),
    /// Capabilities.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// Serving threads.
    #[error(transparent)]
    Start(#[from] serve::StartError),
    /// Another thread, its runtime, or signals.
    #[error("cannot start {part}: {source}; is there a limit on threads or file descriptors?")]
    Part {
        /// Which.
        part: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A bug of ours.
    #[error("the refresher has ended; this is a bug, please report it")]
    RefresherEnded,
}

/// Everything bound, nothing served yet.
#[derive(Debug)]
pub struct App {
    config: Config,
    admin: admin::Bound,
    socket: serve::Bound,
    /// Looked at only where it is the source.
    host: Host,
    sources: Sources,
    epoch: Arc<Epoch>,
    handle: Handle,
    channel: refresh::Channel,
    keep: keep::Keep,
    rights: Rights,
}

// === impl Config ===

impl Config {
    /// Takes sockets and addresses, so that whatever is wrong with them ends the program at once, and then drops all rights that
    /// nothing needs any more. No other thread may have been started.
    pub fn build(mut self) -> Result<App, Error> {
        self.fit_to_descriptors(raise_descriptor_limit());
        let admin = self.admin.bind()?;
        let socket = serve::Server::bind(self.serve.clone())?;
        let keep = self.keep.open()?;
        let watched = Watched { kubelet: self.kubelet.clone(), cgroup_root: self.refresh.kubepods.cgroup_root.clone() };
        let sources = Sources::open(&self.change_sources, &watched);
        if let Some(group) = self.serve.socket.group
            && let Err(error) = rights::join_group(group)
        {
            // So far it has been given to that group. Should somebody remove it, it cannot be made anew.
            tracing::debug!(%error, group, "cannot become a member of the socket's group");
        }
        let rights = rights::keep(sources.needs())?;
        rights_told(&rights);
        // From here on there may be other threads: a source may start one of its own.
        let epoch = sources.epoch();
        let (handle, channel) = refresh::channel(self.refresh.clone(), epoch.clone());
        let host = Host::new(self.host.clone());
        let (told, counted) = (sources.clone(), epoch.clone());
        host.follow(move || told.changes(&counted));
        Ok(App { config: self, admin, socket, host, sources, epoch, handle, channel, keep, rights })
    }
}

// === impl App ===

impl App {
    /// Serves until SIGTERM, SIGINT or a takeover; then drains. `Ok`: it was asked to stop, or another instance has taken over. `at_work`
    /// is called once, when there is something to serve, with the admin server's address.
    pub async fn run(self, log_level: admin::LogLevel, at_work: impl FnOnce(Option<SocketAddr>)) -> Result<(), Error> {
        let signals = |kind| signal(kind).map_err(|source| Error::Part { part: "signal handling", source });
        let (mut terminate, mut interrupt) = (signals(SignalKind::terminate())?, signals(SignalKind::interrupt())?);
        let mut hangups = signals(SignalKind::hangup())?;
        let replace = self.config.serve.socket.replace;
        let grace = self.config.serve.serving.limits.grace;
        let max_stale = self.config.refresh.max_stale;
        let stop = CancellationToken::new();
        // After the last call: some of those in flight wait for a capture.
        let refreshing_stop = CancellationToken::new();
        let admin_stop = CancellationToken::new();

        let readiness = admin::Readiness::new();
        let first_capture = readiness.latch("first capture");
        let published = readiness.latch("socket in place");
        let heartbeats = admin::Heartbeats::new(tokio::time::Instant::now());
        let keep_report = self.keep.report.clone();
        let (board, drift) = (source::failover::Board::default(), drift::Drift::default());
        let work = refreshing::Work {
            host: self.host.clone(),
            board: board.clone(),
            drift: self.config.drift_check.map(|every| {
                let (handle, host, kubepods) = (self.handle.clone(), self.host.clone(), self.config.refresh.kubepods.clone());
                (drift.clone(), drift::Check { handle, host, kubepods, every })
            }),
            channel: self.channel,
            keep: self.keep,
            heartbeat: heartbeats.promise("refresher", REFRESHER_BEAT, tokio::time::Instant::now()),
        };
        let mut refreshing = refreshing::start(&self.config, &self.sources, work, refreshing_stop.clone())
            .map_err(|source| Error::Part { part: "the refresher's thread", source })?;
        let watching_beat = heartbeats.promise("changes", watching::BEAT, tokio::time::Instant::now());
        let watching = watching::start(self.sources.clone(), self.epoch, watching_beat)
            .map_err(|source| Error::Part { part: "the thread that watches for changes", source })?;
        sources::announce(&self.sources, &readiness);
        let table = admission::Table::new(self.config.admission.clone());
        let rulebook = Rulebook { limits: self.config.admission.limits.clone(), classes: self.config.classes.clone() };
        let first = Loaded { rulebook, shown: self.config.shown.clone() };
        let rules = reload::InForce::new(first, self.config.reload.as_ref().map(|reload| reload.file.clone()), &table);
        let resolver = Resolver::new(self.config.refresh.kubepods.clone(), self.config.host.bundles.clone());
        let resolver = Arc::new(resolver.map_err(|source| Error::Part { part: "the thread that looks up pods' names", source })?);
        let socket = match self.config.admission.mode {
            admission::Mode::Off => self.socket,
            admission::Mode::Enforce | admission::Mode::Observe => {
                self.socket.behind(door(table.clone(), resolver.clone(), readiness.clone()))
            }
        };
        let mut serving = socket.serve(self.handle.clone(), stop.clone())?;
        let clients = clients::Clientele { serving: serving.stats(), table: table.clone(), rules: rules.clone(), resolver };
        let reporter = report::Reporter {
            config: Arc::new(self.config.clone()),
            handle: self.handle.clone(),
            host: self.host,
            board,
            drift,
            sources: self.sources,
            clients,
            readiness: readiness.clone(),
            keep: keep_report,
            rights: self.rights,
            started: tokio::time::Instant::now(),
        };
        let address = self.admin.local_addr();
        let admin = self
            .admin
            .serve(reporter.parts(heartbeats, log_level), admin_stop.clone())
            .map_err(|source| Error::Part { part: "the admin thread", source })?;
        self.config.announce(address);

        let handle = self.handle;
        let work = async {
            // In place of a living one only once it can be answered from; else at once, so that clients find it and wait there.
            if replace {
                report::until_first_capture(&handle, &first_capture, max_stale).await;
            }
            serving.publish()?;
            published.open();
            tracing::info!(socket = %self.config.serve.socket.path.display(), "serving v1 and v1alpha1 PodResourcesLister");
            let first = async {
                report::until_first_capture(&handle, &first_capture, max_stale).await;
                first_capture.open();
                report::first_capture(&handle);
                at_work(address);
                std::future::pending::<()>().await;
            };
            // Another instance may come at any time, and the socket's file be removed.
            tokio::select! {
                () = serving.taken_over() => {}
                () = first => {}
            }
            Ok::<_, Error>("another instance has taken the socket over")
        };
        let ended = tokio::select! {
            _ = terminate.recv() => Ok("SIGTERM"),
            _ = interrupt.recv() => Ok("SIGINT"),
            done = work => done,
            () = sweep(&table) => Ok("never"),
            never = reload::keep(&rules, self.config.reload.as_ref(), &table, &mut hangups) => match never {},
            () = refreshing.ended() => Err(Error::RefresherEnded),
        };
        match &ended {
            Ok(why) => tracing::info!(why, grace = ?grace, "stopping: what is in flight is finished"),
            Err(error) => tracing::error!(%error, "stopping"),
        }
        stop.cancel();
        serving.drained().await;
        refreshing_stop.cancel();
        admin_stop.cancel();
        // Joining blocks, and there is nothing left to do beside it.
        admin.join();
        refreshing.join();
        watching.join();
        tracing::info!("stopped");
        ended.map(drop)
    }
}

/// How clients come in: by what the kernel says of them.
fn door(table: Arc<admission::Table>, resolver: Arc<Resolver>, readiness: admin::Readiness) -> serve::Door {
    let told = AtomicBool::new(false);
    let identify = move |socket: BorrowedFd<'_>| {
        let peer = resolver.resolve(socket);
        if peer.pid.is_none() && resolver.sight().needs_host_pid() && !told.swap(true, Relaxed) {
            readiness.note(NO_HOST_PID);
            tracing::warn!("{NO_HOST_PID}");
        }
        peer
    };
    serve::Door { table, identify: Arc::new(identify) }
}

/// Forgets the clients that have gone, also where nobody comes any more.
async fn sweep(table: &admission::Table) {
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    loop {
        table.sweep(tick.tick().await);
    }
}

/// Says once what this process may still do.
fn rights_told(rights: &Rights) {
    tracing::info!(uid = rustix::process::geteuid().as_raw(), %rights, no_new_privs = true, "rights");
    if rights.other_threads() > 0 {
        let threads = rights.other_threads();
        tracing::error!(
            threads,
            "something else has started threads in this process (LD_PRELOAD?); they have the rights that they had"
        );
    }
}

/// Each connection takes a descriptor, and the usual soft limit of 1,024 is there for `select(2)`, which nothing here uses.
/// Returns what the limit is then.
fn raise_descriptor_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit on file descriptors; fewer clients can connect");
    }
    getrlimit(Resource::Nofile).current
}

impl Config {
    /// Clients must not be able to use up the descriptors with which the kubelet is asked, and with which it is told who they are.
    fn fit_to_descriptors(&mut self, descriptors: Option<u64>) {
        let Some(descriptors) = descriptors else { return };
        let (wanted, possible) = (self.serve.serving.limits.connections, serve::Limits::connections_within(descriptors));
        if possible < wanted {
            tracing::warn!(
                descriptors,
                wanted,
                possible,
                "fewer connections than --max-connections: raise the limit on file descriptors (LimitNOFILE=, ulimit -n)"
            );
            self.serve.serving.limits.connections = possible;
            self.admission.max_connections = possible;
        }
    }

    /// Says once what matters.
    fn announce(&self, admin: Option<SocketAddr>) {
        let admin = admin.map_or_else(|| "off".to_owned(), |address| address.to_string());
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            source = ?self.source,
            kubelet = %self.kubelet.socket.display(),
            kubelet_dir = %self.kubelet.root_dir.display(),
            listen = %self.serve.socket.path.display(),
            admin,
            admin_socket = %self.admin.socket.clone().unwrap_or_else(|| PathBuf::from("off")).display(),
            "podresources-proxy starts"
        );
    }
}
