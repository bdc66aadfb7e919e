//! The sources that are in use, as one.

use std::sync::Arc;

use tokio::sync::watch;

use super::epoch::{Epoch, Queue};
use super::pods_api::Settled;
use super::source::{PartReport, Sees, Source};
use crate::rights::Needed;
use crate::source::host::Change;

/// The change sources of this process, best first. A clone shares them.
#[derive(Clone)]
pub struct Sources {
    all: Arc<[Arc<dyn Source>]>,
    queues: Arc<[Arc<dyn Queue>]>,
    /// Where changes are counted that another source has counted already: those of queues that requests need not ask.
    unheard: Arc<Epoch>,
}

/// How one source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which.
    pub name: &'static str,
    /// Piece by piece.
    pub parts: Vec<PartReport>,
}

// === impl Sources ===

impl Sources {
    /// These, best first.
    pub fn new(all: Vec<Arc<dyn Source>>) -> Self {
        let mut queues: Vec<Arc<dyn Queue>> = Vec::new();
        for queue in all.iter().filter_map(|source| source.queue()) {
            if !queues.iter().any(|known| same(known, &queue)) {
                queues.push(queue);
            }
        }
        Self { all: all.into(), queues: queues.into(), unheard: Arc::new(Epoch::new(Vec::new())) }
    }

    /// Best first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Source>> {
        self.all.iter()
    }

    /// The rights to be kept: what each needs that sees something no better one sees. The others stay as they are without.
    pub fn needs(&self) -> Needed {
        let mut seen = Sees::NOTHING;
        let mut needed = Needed::NOTHING;
        for source in self.iter() {
            let sees = source.sees();
            if sees.without(seen) != Sees::NOTHING {
                needed = needed.and(source.needs());
            }
            seen = seen.and(sees);
        }
        needed
    }

    /// An epoch that all of them move.
    pub fn epoch(&self) -> Arc<Epoch> {
        let epoch = Arc::new(Epoch::new(self.queues.to_vec()));
        for source in self.iter() {
            source.begin(&epoch);
        }
        self.choose_queues(&epoch);
        epoch
    }

    /// Has each put back what is lost. Blocks for as long as that takes.
    pub fn mend(&self, epoch: &Epoch) {
        for source in self.iter() {
            source.mend(self.heard(source, epoch));
        }
        self.choose_queues(epoch);
    }

    /// Empties all queues. What stands in one that requests do not ask has been counted already: counted once more it would only make
    /// for another capture.
    pub fn take(&self, epoch: &Epoch) {
        for (at, queue) in self.queues.iter().enumerate() {
            queue.take_waiting(if epoch.asks(at) { epoch } else { &self.unheard });
        }
    }

    /// A source's descriptor is readable, and its queue has been emptied.
    pub fn woken(&self, source: &Arc<dyn Source>, epoch: &Epoch) {
        source.woken(self.heard(source, epoch));
    }

    fn heard<'a>(&'a self, source: &Arc<dyn Source>, epoch: &'a Epoch) -> &'a Epoch {
        let queue = source.queue().and_then(|its| self.queues.iter().position(|known| same(known, &its)));
        if queue.is_some_and(|at| !epoch.asks(at)) { &self.unheard } else { epoch }
    }

    /// Has requests ask only the queues that see what no word, and no queue asked before, sees.
    pub fn choose_queues(&self, epoch: &Epoch) {
        let by_word =
            self.iter().filter(|source| source.queue().is_none()).fold(Sees::NOTHING, |seen, source| seen.and(source.sees()));
        let mut wanted = Sees::ALL.without(by_word);
        let sight = |queue: &Arc<dyn Queue>| {
            let of = self.iter().filter(|source| source.queue().is_some_and(|its| same(&its, queue)));
            of.fold(Sees::NOTHING, |seen, source| seen.and(source.sees()))
        };
        // Those that see most first: each queue costs every request a system call.
        let mut by_sight: Vec<(usize, Sees)> = self.queues.iter().map(sight).enumerate().collect();
        by_sight.sort_by_key(|(_, sees)| std::cmp::Reverse(sees.count()));
        let mut asked = Vec::new();
        for (at, sees) in by_sight {
            if sees.meets(wanted) {
                wanted = wanted.without(sees);
                asked.push(at);
            }
        }
        epoch.ask(asked);
    }

    /// Every change of a cgroup below kubepods that `epoch` has counted since the last call, see [`Source::changes`]. Told by the best
    /// source that sees them all, and by no other: what one sees whose queue requests do not ask may be counted and not be read yet.
    pub fn changes(&self, epoch: &Epoch) -> Option<Vec<Change>> {
        let all = Sees::CGROUPS.and(Sees::CPUSETS);
        let source = self.iter().find(|source| all.without(source.sees()) == Sees::NOTHING)?;
        // A source that nobody hears counts elsewhere.
        if std::ptr::eq(self.heard(source, epoch), epoch) { source.changes() } else { None }
    }

    /// The kubelet's word that it knows all its pods, where a source can tell.
    pub fn settled(&self) -> Option<watch::Receiver<Option<Settled>>> {
        self.iter().find_map(|source| source.settled())
    }

    /// How each is.
    pub fn report(&self) -> Vec<Report> {
        self.iter().map(|source| Report { name: source.name(), parts: source.parts() }).collect()
    }
}

impl Default for Sources {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(|source| source.name())).finish()
    }
}

fn same(one: &Arc<dyn Queue>, other: &Arc<dyn Queue>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::change::Kind;

    /// A source that sees what the test says, with a queue or without.
    struct Fake {
        sees: Mutex<Sees>,
        queue: Option<Arc<FakeQueue>>,
        needs: Needed,
    }

    #[derive(Default)]
    struct FakeQueue(AtomicBool);

    impl Queue for FakeQueue {
        fn take_waiting(&self, epoch: &Epoch) {
            if self.0.swap(false, Ordering::Relaxed) {
                epoch.bump(Kind::List);
            }
        }
    }

    impl Source for Fake {
        fn name(&self) -> &'static str {
            "fake"
        }

        fn parts(&self) -> Vec<PartReport> {
            Vec::new()
        }

        fn sees(&self) -> Sees {
            *self.sees.lock().unwrap()
        }

        fn queue(&self) -> Option<Arc<dyn Queue>> {
            let queue: Arc<dyn Queue> = self.queue.clone()?;
            Some(queue)
        }

        fn needs(&self) -> Needed {
            self.needs
        }

        fn mend(&self, _: &Epoch) {}
    }

    fn fake(sees: Sees, queue: bool) -> Arc<Fake> {
        Arc::new(Fake { sees: Mutex::new(sees), queue: queue.then(Arc::default), needs: Needed::NOTHING })
    }

    fn sources(all: &[&Arc<Fake>]) -> Sources {
        Sources::new(all.iter().map(|fake| Arc::clone(fake) as Arc<dyn Source>).collect())
    }

    #[test]
    fn a_queue_whose_changes_are_counted_elsewhere_is_not_asked_and_counts_nothing_until_they_are_not() {
        let (words, queue) = (fake(Sees::ALL, false), fake(Sees::CGROUPS, true));
        let sources = sources(&[&words, &queue]);
        let epoch = sources.epoch();
        let waits = &queue.queue.as_ref().unwrap().0;
        let before = epoch.now();
        waits.store(true, Ordering::Relaxed);
        assert_eq!(epoch.now(), before, "not asked");
        sources.take(&epoch);
        assert_eq!((epoch.now(), waits.load(Ordering::Relaxed)), (before, false), "emptied, and not counted again");
        *words.sees.lock().unwrap() = Sees::NOTHING;
        sources.mend(&epoch);
        assert_eq!(epoch.now(), before + 1, "what it alone saw meanwhile went unseen");
        waits.store(true, Ordering::Relaxed);
        assert_eq!(epoch.now(), before + 2, "asked from now on");
    }

    #[test]
    fn of_two_queues_that_see_the_same_the_one_that_sees_more_is_asked() {
        let (marks, watches) = (fake(Sees::CGROUPS.and(Sees::CPUSETS), true), fake(Sees::ALL, true));
        let sources = sources(&[&marks, &watches]);
        let epoch = sources.epoch();
        assert_eq!((epoch.asks(0), epoch.asks(1)), (false, true));
        *watches.sees.lock().unwrap() = Sees::KUBELET;
        sources.mend(&epoch);
        assert_eq!((epoch.asks(0), epoch.asks(1)), (true, true));
    }

    #[test]
    fn rights_are_kept_for_what_no_better_source_sees() {
        let needs = |all: &[(Sees, Needed)]| {
            let all = all.iter().map(|(sees, needed)| -> Arc<dyn Source> {
                Arc::new(Fake { sees: Mutex::new(*sees), queue: None, needs: *needed })
            });
            Sources::new(all.collect()).needs()
        };
        let programs = Needed { bpf: true, perfmon: true, sys_admin: false };
        let marks = Needed { sys_admin: true, ..Needed::NOTHING };
        let cgroups = Sees::CGROUPS.and(Sees::CPUSETS);
        assert_eq!(needs(&[(Sees::ALL, programs), (cgroups, marks)]), programs);
        assert_eq!(needs(&[(Sees::CGROUPS, programs), (cgroups, marks)]), programs.and(marks), "cpusets are seen by marks alone");
        assert_eq!(needs(&[(Sees::NOTHING, programs), (cgroups, marks)]), marks, "programs that were refused need nothing");
        assert_eq!(needs(&[(Sees::NOTHING, Needed::NOTHING)]), Needed::NOTHING);
    }
}
