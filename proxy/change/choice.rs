//! Which sources are wanted, and how they are opened.

use std::path::PathBuf;
use std::sync::Arc;

use super::fanotify::Fanotify;
use super::inotify::{Inotify, KubeletDirs, KubepodsDirs, KubepodsReader, Layout, Reader, WatchError};
use super::plain::Plain;
use super::pods_api::PodsApi;
use super::source::{Source, State};
use super::sources::Sources;
use crate::config::ChangeSource as Choice;

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The kubelet's socket and root directory.
    pub kubelet: Layout,
    /// Where the cgroup hierarchies are mounted.
    pub cgroup_root: PathBuf,
}

// === impl Sources ===

impl Sources {
    /// Opens those that are chosen, best first. One that cannot be had is among them all the same, and says why.
    pub fn open(chosen: &[Choice], watched: &Watched) -> Self {
        let inotify = Inotifies::open(chosen, watched);
        let open = |choice: &Choice| open(*choice, watched, &inotify);
        Self::new(Choice::ALL.iter().filter(|choice| chosen.contains(choice)).map(open).collect())
    }
}

/// The one inotify instance, and the places of its readers.
struct Inotifies {
    instance: Option<Result<Arc<Inotify>, WatchError>>,
    kubelet: usize,
    kubepods: usize,
}

// === impl Inotifies ===

impl Inotifies {
    fn open(chosen: &[Choice], watched: &Watched) -> Self {
        let mut readers: Vec<Box<dyn Reader>> = Vec::new();
        let kubelet = readers.len();
        if chosen.contains(&Choice::KubeletDirs) {
            readers.push(Box::new(watched.kubelet.reader()));
        }
        let kubepods = readers.len();
        if chosen.contains(&Choice::Kubepods) {
            readers.push(Box::new(KubepodsReader));
        }
        let instance = (!readers.is_empty()).then(|| Inotify::new(readers));
        Self { instance, kubelet, kubepods }
    }

    fn with(&self, choice: Choice, source: impl FnOnce(Arc<Inotify>) -> Arc<dyn Source>) -> Arc<dyn Source> {
        match &self.instance {
            Some(Ok(instance)) => source(instance.clone()),
            Some(Err(error)) => {
                let grant = "raise fs.inotify.max_user_instances, or the limit on file descriptors".to_owned();
                Arc::new(Plain::new(choice.name(), "inotify", State::Refused { why: error.to_string(), grant }))
            }
            None => absent(choice, "not chosen"),
        }
    }
}

fn open(choice: Choice, watched: &Watched, inotify: &Inotifies) -> Arc<dyn Source> {
    match choice {
        #[cfg(feature = "ebpf")]
        Choice::Ebpf => Arc::new(super::ebpf::Ebpf::attach(watched.clone(), &super::ebpf::KernelFiles::default())),
        #[cfg(not(feature = "ebpf"))]
        Choice::Ebpf => absent(choice, "this build has no eBPF programs"),
        Choice::Fanotify => match Fanotify::mark(watched.cgroup_root.clone()) {
            Ok(fanotify) => Arc::new(fanotify),
            Err(state) => Arc::new(Plain::new(choice.name(), "marks", state)),
        },
        Choice::Kubepods => {
            inotify.with(choice, |instance| Arc::new(KubepodsDirs::watch(watched.cgroup_root.clone(), instance, inotify.kubepods)))
        }
        Choice::KubeletDirs => {
            inotify.with(choice, |instance| Arc::new(KubeletDirs::watch(&watched.kubelet, instance, inotify.kubelet)))
        }
        Choice::PodsApi => Arc::new(PodsApi::new(&watched.kubelet.root_dir)),
        Choice::Timer => Arc::new(Plain::timer()),
    }
}

fn absent(choice: Choice, why: &str) -> Arc<dyn Source> {
    Arc::new(Plain::new(choice.name(), choice.name(), State::Absent { why: why.to_owned() }))
}
