//! Pods' namespaces and names, looked up on a thread of their own: a log directory on a disk that hangs keeps nobody waiting for long.
//!
//! The kubelet's log directory names all pods at once. Where it says nothing of one, its container's bundle may.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::kubepods::{self, Kubepods, PodUid};
use crate::snapshot::PodName;

use super::client::ContainerId;

/// How long a connection waits for its pod's name; then it goes on without.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a pod that has no name is not asked for again.
const NAMELESS: Duration = Duration::from_secs(10);
/// Most pods without a name that are kept in mind, and most that are looked for by a container.
const MOST_NAMELESS: usize = 1024;

/// A container each of pods that are asked for.
type Asked = HashMap<PodUid, ContainerId>;

/// The names of the pods on this node.
#[derive(Debug)]
pub(super) struct Names {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Told of each look that has begun to be wanted, and of each that has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// As of the last look. The kubelet makes a pod's log directory before its first container.
    names: HashMap<PodUid, Arc<PodName>>,
    nameless: HashMap<PodUid, Instant>,
    /// Pods that were not named yet when they were asked for, or that only a bundle names.
    asked: Asked,
    /// How many looks have begun, have ended, and are wanted in all.
    begun: u64,
    ended: u64,
    wanted: u64,
    /// Somebody has waited for a look in vain: until one ends, nobody else waits.
    hangs: bool,
    closed: bool,
}

// === impl Names ===

impl Names {
    /// `look` takes from what it is asked all that need not be asked again.
    fn new(look: impl FnMut(&mut Asked) -> HashMap<PodUid, PodName> + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let looking = Arc::clone(&shared);
        std::thread::Builder::new().name("peer-names".into()).spawn(move || looking.run(look))?;
        Ok(Self { shared })
    }

    pub(super) fn of_node(kubepods: Kubepods, bundle_dirs: Vec<PathBuf>) -> io::Result<Self> {
        Self::new(move |asked| {
            let mut names = kubepods.names();
            asked.retain(|pod, _| !names.contains_key(pod));
            // Read anew each time: a bundle that is gone names nobody any more.
            let mut bundles = kubepods::Names::new(bundle_dirs.clone(), kubepods.pod_logs.clone());
            asked.retain(|pod, container| {
                let Some(name) = named(&mut bundles, *pod, container) else { return false };
                names.insert(*pod, name);
                true
            });
            names
        })
    }

    /// A pod's name, if it has one and it can be told soon. Blocks. `container` is one of the pod's.
    pub(super) fn of(&self, pod: PodUid, container: Option<&ContainerId>) -> Option<Arc<PodName>> {
        let mut state = self.shared.lock();
        if let Some(name) = state.names.get(&pod) {
            return Some(Arc::clone(name));
        }
        let now = Instant::now();
        if state.nameless.get(&pod).is_some_and(|until| now < *until) {
            return None;
        }
        if let Some(container) = container
            && state.asked.len() < MOST_NAMELESS
        {
            state.asked.insert(pod, container.clone());
        }
        // A look that has begun already may have passed the place.
        let look = state.begun + 1;
        state.wanted = state.wanted.max(look);
        self.shared.changed.notify_all();
        if state.hangs {
            return None;
        }
        let (mut state, timeout) = self
            .shared
            .changed
            .wait_timeout_while(state, PATIENCE, |state| state.ended < look)
            .unwrap_or_else(PoisonError::into_inner);
        let name = state.names.get(&pod).map(Arc::clone);
        if timeout.timed_out() && state.ended < look {
            state.hangs = true;
        } else if name.is_none() {
            state.nameless.retain(|_, until| now < *until);
            if state.nameless.len() < MOST_NAMELESS {
                state.nameless.insert(pod, now + NAMELESS);
            }
        }
        name
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

// === impl Shared ===

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, mut look: impl FnMut(&mut Asked) -> HashMap<PodUid, PodName>) {
        loop {
            let waiting = self.changed.wait_while(self.lock(), |state| state.begun == state.wanted && !state.closed);
            let mut state = waiting.unwrap_or_else(PoisonError::into_inner);
            if state.closed {
                return;
            }
            state.begun += 1;
            let mut asked = std::mem::take(&mut state.asked);
            drop(state);
            let mut found = look(&mut asked);
            let mut state = self.lock();
            // What was asked for meanwhile is of newer containers.
            asked.extend(state.asked.drain());
            state.asked = asked;
            // Names of pods that are known already are shared with their connections.
            let mut names = std::mem::take(&mut state.names);
            names.retain(|uid, name| found.remove(uid).is_some_and(|found| found == **name));
            names.extend(found.into_iter().map(|(uid, name)| (uid, Arc::new(name))));
            state.names = names;
            state.ended = state.begun;
            state.hangs = false;
            self.changed.notify_all();
        }
    }
}

/// What the container's bundle says of its pod. Who may write to its own cgroup could make one below it with another pod's container for
/// a name; the runtime has noted whose that is.
fn named(bundles: &mut kubepods::Names, pod: PodUid, container: &ContainerId) -> Option<PodName> {
    let identity = bundles.identity(container.as_str(), &pod).ok()?;
    if identity.uid == Some(pod) { identity.pod.clone() } else { None }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::sync::mpsc;

    use super::*;

    fn uid(n: u8) -> PodUid {
        PodUid::parse(&format!("{n:032x}")).unwrap()
    }

    fn name(name: &str) -> PodName {
        PodName { namespace: "ns".into(), name: name.into() }
    }

    #[test]
    fn a_pods_name_is_looked_up_once() {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let names = Names::new(move |_| {
            counted.fetch_add(1, Relaxed);
            [(uid(1), name("a")), (uid(2), name("b"))].into()
        })
        .unwrap();
        for (pod, called) in [(1, "a"), (2, "b"), (1, "a")] {
            assert_eq!(names.of(uid(pod), None).unwrap().name, called);
        }
        assert_eq!(looks.load(Relaxed), 1);
    }

    #[test]
    fn a_pod_without_a_name_is_not_looked_up_for_each_of_its_connections() {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looks);
        let names = Names::new(move |_| {
            counted.fetch_add(1, Relaxed);
            HashMap::new()
        })
        .unwrap();
        for _ in 0..10 {
            assert_eq!(names.of(uid(1), None), None);
        }
        assert_eq!(looks.load(Relaxed), 1);
    }

    #[test]
    fn a_look_that_hangs_keeps_nobody_for_ever_and_known_names_are_told_meanwhile() {
        let (hold, held) = mpsc::channel::<()>();
        let first = AtomicUsize::new(0);
        let names = Names::new(move |_| {
            if first.fetch_add(1, Relaxed) > 0 {
                let _ = held.recv();
            }
            [(uid(1), name("a"))].into()
        })
        .unwrap();
        assert!(names.of(uid(1), None).is_some());
        assert_eq!(names.of(uid(2), None), None);
        assert!(names.shared.lock().hangs, "the next ones do not wait");
        assert_eq!(names.of(uid(3), None), None);
        assert_eq!(names.of(uid(1), None).unwrap().name, "a");
        drop(hold);
    }

    #[test]
    fn a_pod_whose_directory_is_made_while_a_look_is_under_way_is_found_by_the_next() {
        let (begin, begun) = mpsc::channel();
        let (go, gone_on) = mpsc::channel::<()>();
        let seen = Arc::new(Mutex::new(HashMap::from([(uid(1), name("a"))])));
        let node = Arc::clone(&seen);
        let names = Arc::new(
            Names::new(move |_| {
                let found = node.lock().unwrap().clone();
                begin.send(()).unwrap();
                let _ = gone_on.recv();
                found
            })
            .unwrap(),
        );
        let asking = |pod| {
            let names = Arc::clone(&names);
            std::thread::spawn(move || names.of(pod, None))
        };
        let one = asking(uid(1));
        begun.recv().unwrap();
        seen.lock().unwrap().insert(uid(2), name("b"));
        let two = asking(uid(2));
        // It has asked once the next look is wanted.
        while names.shared.lock().wanted < 2 {
            std::thread::yield_now();
        }
        drop(go);
        assert_eq!(one.join().unwrap().unwrap().name, "a");
        assert_eq!(two.join().unwrap().unwrap().name, "b");
    }

    fn container(id: &str) -> ContainerId {
        ContainerId::new(id)
    }

    fn of_node(dir: &Path) -> Names {
        let kubepods = Kubepods { cgroup_root: dir.join("none"), pod_logs: dir.join("logs") };
        Names::of_node(kubepods, vec![dir.join("bundles")]).unwrap()
    }

    fn bundle(dir: &Path, id: &str, pod: u8, name: &str) {
        let path = dir.join("bundles").join(id);
        fs::create_dir_all(&path).unwrap();
        let annotations = serde_json::json!({
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.container-name": "main",
            "io.kubernetes.cri.sandbox-name": name,
            "io.kubernetes.cri.sandbox-namespace": "ns",
            "io.kubernetes.cri.sandbox-uid": format!("{pod:032x}"),
        });
        fs::write(path.join("config.json"), serde_json::json!({ "annotations": annotations }).to_string()).unwrap();
    }

    #[test]
    fn a_pod_that_no_log_names_is_named_by_its_containers_bundle_as_long_as_that_is_there() {
        let dir = tempfile::tempdir().unwrap();
        bundle(dir.path(), "c1", 1, "a");
        bundle(dir.path(), "c2", 2, "b");
        let names = of_node(dir.path());
        assert_eq!(names.of(uid(1), Some(&container("c1"))).unwrap().name, "a");
        assert_eq!(names.of(uid(2), Some(&container("c2"))).unwrap().name, "b");
        assert_eq!(names.of(uid(1), None).unwrap().name, "a", "the second look has kept it");
        assert_eq!(names.of(uid(3), Some(&container("c3"))), None);
        assert_eq!(names.shared.lock().asked.len(), 2, "who has no bundle is not looked for again");
        fs::remove_dir_all(dir.path().join("bundles/c2")).unwrap();
        assert_eq!(names.of(uid(4), Some(&container("c4"))), None);
        assert_eq!(names.shared.lock().asked.len(), 1, "who has gone is not kept");
    }

    #[test]
    fn another_pods_container_gives_no_name() {
        let dir = tempfile::tempdir().unwrap();
        bundle(dir.path(), "c1", 1, "a");
        assert_eq!(of_node(dir.path()).of(uid(2), Some(&container("c1"))), None);
    }

    #[test]
    fn the_log_directory_goes_before_the_bundles() {
        let dir = tempfile::tempdir().unwrap();
        bundle(dir.path(), "c1", 1, "of-the-bundle");
        fs::create_dir_all(dir.path().join("logs").join(format!("ns_of-the-logs_{}", uid(1)))).unwrap();
        let names = of_node(dir.path());
        assert_eq!(names.of(uid(1), Some(&container("c1"))).unwrap().name, "of-the-logs");
        assert!(names.shared.lock().asked.is_empty());
    }
}
