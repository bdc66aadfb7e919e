//! The host itself as a source: what the kernel and the runtimes know of pods, CPUs and memory, with no kubelet to ask.
//!
//! [`exclusive`] is the judgement, pure; [`tree`] and [`node`] read; [`reply`] encodes. docs/HOST.md says what is told and what is not.
//!
//! A look reads what has changed since the last, where a change source names every change ([`Host::follow`]), and everything else every
//! few seconds. It asks for the changes before it reads anything, and the source answers only if it can name every change that the epoch
//! counts by then. So whoever read the epoch before the look began, and saw a change counted, gets it from this look: it was named to
//! this one or to one before, which then read it. Where the source cannot tell (records lost or under way, programs attached anew, no
//! such source), everything is read.

mod cdi;
mod cgroup;
pub mod exclusive;
mod node;
mod quantity;
mod reply;
mod settings;
mod skip;
mod tree;
mod view;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Call, Failure, Reply, Upstream};
use crate::answer;
use crate::grpc::{Code, Status};
use crate::kubepods::{Kubepods, Names};

pub use crate::cpuset::CpuSet;
pub use cdi::CdiDevice;
pub use node::{NoCpus, Node, NumaNode};
pub use settings::{Cpus, Memory as ReservedMemory, Settings};
pub use skip::{Skip, Skipped, Why};
pub use tree::{Change, ChangeKind, Known, Tree};
pub use view::{Container, Memory, Pod, Pods, View};
#[cfg(feature = "fuzzing")]
pub use {cdi::cdi_names, quantity::amount, settings::kubelet_settings};

/// However well changes are told, everything is read again after this long.
const RESCAN_EVERY: Duration = Duration::from_secs(10);

/// The host never restarts under us: all its replies come over one connection.
const CONNECTION: u64 = 1;

/// Where the host keeps what is read.
#[derive(Clone, Debug)]
pub struct Config {
    /// Cgroups and pod logs.
    pub kubepods: Kubepods,
    /// The runtimes' directories of bundles.
    pub bundles: Vec<PathBuf>,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/proc`.
    pub proc: PathBuf,
    /// Directories of CDI specifications.
    pub cdi: Vec<PathBuf>,
    /// The kubelet's configuration file, where there is one.
    pub kubelet_config: PathBuf,
    /// CPUs kept from pods; `None`: the kubelet's configuration says so.
    pub reserved: Option<CpuSet>,
}

/// The host as a source. A clone shares everything.
#[derive(Clone, Debug)]
pub struct Host {
    shared: Arc<Shared>,
}

/// Names all that has changed below kubepods since it was asked last, or says that it cannot.
type Changes = Box<dyn Fn() -> Option<Vec<Change>> + Send + Sync>;

struct Shared {
    config: Config,
    /// Held while reading; only threads made for blocking take it.
    state: Mutex<State>,
    changes: OnceLock<Changes>,
    scans: AtomicU64,
    /// What was found last.
    view: arc_swap::ArcSwapOption<View>,
}

#[derive(Debug)]
struct State {
    tree: Tree,
    node: Option<Arc<Node>>,
    scanned: Option<Instant>,
}

// === impl Host ===

impl Host {
    /// The host with these places. Nothing is read yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let names = Names::new(config.bundles.clone(), config.kubepods.pod_logs.clone());
        let tree = Tree::new(config.kubepods.cgroup_root.clone(), names);
        let state = Mutex::new(State { tree, node: None, scanned: None });
        let view = arc_swap::ArcSwapOption::empty();
        Self { shared: Arc::new(Shared { config, state, changes: OnceLock::new(), scans: AtomicU64::new(0), view }) }
    }

    /// What was found last; `None` before the first look.
    #[must_use]
    pub fn view(&self) -> Option<Arc<View>> {
        self.shared.view.load_full()
    }

    /// How often everything was read.
    #[must_use]
    pub fn scans(&self) -> u64 {
        self.shared.scans.load(Ordering::Relaxed)
    }

    /// From now on only what has changed is read. `changes` names, at each call, every change that was counted since the one before, or
    /// says that it cannot. The first who is given is asked, and nobody but this host may ask it.
    pub fn follow(&self, changes: impl Fn() -> Option<Vec<Change>> + Send + Sync + 'static) {
        let _first = self.shared.changes.set(Box::new(changes));
    }

    /// Reads what has changed, or everything; the machine itself with everything, or where it is asked for. Blocks.
    pub fn look(&self, machine_too: bool) -> Result<Arc<View>, NoCpus> {
        let config = &self.shared.config;
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = state.scanned.is_some_and(|at| at.elapsed() < RESCAN_EVERY);
        let node = match state.node.take().filter(|_| recent && !machine_too) {
            Some(node) => node,
            None => Arc::new(config.node()?),
        };
        state.node = Some(node.clone());
        let known = Known { always_shared: node.settings.always_shared.clone(), page_sizes: node.page_sizes() };
        // From here on nothing fails: what was named is named once. Before anything is read, and also where everything will be.
        let changes = self.shared.changes.get().and_then(|changes| changes());
        let followed = recent && changes.is_some_and(|changes| state.tree.follow(&changes, &known));
        if !followed {
            state.tree.rescan(&known);
            state.scanned = Some(Instant::now());
            self.shared.scans.fetch_add(1, Ordering::Relaxed);
        }
        let view = Arc::new(View { node, pods: state.tree.view() });
        tell(self.view().as_deref(), &view);
        self.shared.view.store(Some(view.clone()));
        Ok(view)
    }

    /// Not on the refresher's thread, which has clients' waits to serve.
    async fn look_off_thread(&self, machine_too: bool) -> Result<Arc<View>, Failure> {
        let host = self.clone();
        let looked = tokio::task::spawn_blocking(move || host.look(machine_too)).await;
        looked.map_err(|error| Failure::Lost(error.to_string()))?.map_err(|error| Failure::Broken(error.to_string()))
    }
}

impl Upstream for Host {
    async fn connect(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        let view = self.look_off_thread(call == Call::Allocatable).await?;
        let message = match call {
            Call::List => reply::list(&view.pods),
            Call::Allocatable => reply::allocatable(&view.node),
            Call::AlphaList => reply::alpha_list(&view.pods),
            Call::Get { namespace, name } => reply::get(&view.pods, namespace, name).ok_or_else(|| {
                // The kubelet's own words: clients compare them.
                Failure::Answered(Status::new(Code::Unknown, format!("pod {name} in namespace {namespace} not found")))
            })?,
        };
        Ok(Reply { message: message.into(), connection: CONNECTION })
    }

    fn source(&self) -> answer::Source {
        answer::Source::Host
    }

    fn connections(&self) -> u64 {
        CONNECTION
    }

    fn drop_if_replaced(&self) -> bool {
        false
    }

    async fn closed(&self) {
        std::future::pending::<()>().await;
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("config", &self.config).field("scans", &self.scans).finish_non_exhaustive()
    }
}

// === impl Config ===

impl Config {
    fn node(&self) -> Result<Node, NoCpus> {
        let mut node = Node::read(&self.sys, &self.proc)?;
        node.settings = Settings::read(&self.kubelet_config, self.reserved.as_ref(), &mut node.skipped);
        node.devices = cdi::devices(&self.cdi, &self.sys, &mut node.skipped);
        Ok(node)
    }
}

/// Says once what somebody should know.
fn tell(before: Option<&View>, now: &View) {
    if before.is_none_or(|before| before.pods.roots != now.pods.roots) {
        if now.pods.roots.is_empty() {
            tracing::info!("the host has no kubepods cgroup: List is empty, and node resources are told");
        } else {
            tracing::info!(roots = ?now.pods.roots, "pods are read from the cgroups");
        }
    }
    if before.is_none_or(|before| before.node.settings.cpus != now.node.settings.cpus)
        && let Cpus::None(why) = now.node.settings.cpus
    {
        tracing::info!(why, "the host tells no allocatable CPUs");
    }
    if before.is_none_or(|before| before.node.online != now.node.online) {
        tracing::info!(online = %now.node.online, isolated = %now.node.isolated, "CPUs of the host");
    }
    let skipped = |view: &View| (view.pods.skipped.clone(), view.node.skipped.clone());
    if before.map(skipped).as_ref() != Some(&skipped(now)) {
        for skip in now.pods.skipped.named().iter().chain(now.node.skipped.named()) {
            tracing::debug!(why = skip.why.label(), what = skip.what, detail = skip.detail, "the host source passes over");
        }
    }
}

#[cfg(test)]
mod tests;
