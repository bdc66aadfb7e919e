//! Changes told by programs in the kernel: nothing to ask, nothing to miss.
//!
//! What is attached counts in words that are mapped into this process, so a change is in the epoch before the system call that made it
//! returns. Everything here may fail, program by program, and then says so; other sources see what this one does not.

mod btf;
mod event;
mod filter;
mod format;
mod kernel;
mod loader;
mod programs;
mod refusal;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use podresources_proxy_ebpf_common::words;
use tokio::sync::broadcast;

use self::filter::{Found, Installed};
use self::loader::{Attached, LoadError, Loaded};
use self::programs::{DUTIES, Duty, Way};
use self::refusal::Rights;
use super::journal::Journal;
use super::{Epoch, Kind as ChangeKind, PartReport, Sees, Source, State, Watched, Words};
use crate::rights::Needed;
use crate::source::host::Change;
use crate::sys::SharedWords;

use event::Says;
pub use event::{Event, Kind, Role};
pub use loader::KernelFiles;

/// How many events wait for a subscriber that is slow.
const BACKLOG: usize = 1024;

/// How often the ring is read again for a record that is counted and not there yet. It takes a program far less than a microsecond.
const TRIES: usize = 64;

/// The programs as a source of changes.
pub struct Ebpf {
    watched: Watched,
    /// Our own view of the words; `None` where there are no programs.
    words: Option<Words>,
    inside: Mutex<Inside>,
    events: broadcast::Sender<Arc<Event>>,
}

struct Inside {
    /// `None` where not even the maps could be made.
    loaded: Option<(Loaded, Installed)>,
    standings: Vec<Standing>,
    found: Found,
    /// The word for new roots that the filter in force knows of.
    late_seen: u64,
    events_read: u64,
    chatter_read: u64,
    journal: Journal,
    /// Records that the ring had no room for, as far as the journal knows.
    lost_seen: u64,
    rights: Rights,
}

/// How a duty stands.
struct Standing {
    duty: &'static Duty,
    /// The ways that were tried, the last of them with success or not.
    ways: Vec<Tried>,
}

struct Tried {
    way: &'static Way,
    state: State,
    attached: Vec<Attached>,
    losses: u64,
    /// The kernel's count of events that a program missed, as far as they are counted as losses.
    missed: u64,
}

/// For [`crate::fuzzing`].
#[cfg(feature = "fuzzing")]
pub(crate) fn kernel_types(btf: &[u8]) -> String {
    match btf::Btf::parse(btf) {
        Ok(btf) => format!("{:?}", kernel::Kernel::of(&btf)),
        Err(error) => error.to_string(),
    }
}

// === impl Ebpf ===

impl Ebpf {
    /// Attaches whatever this kernel and this process's rights allow. Never fails: what did not work is in the report.
    pub fn attach(watched: Watched, files: &KernelFiles) -> Self {
        Self::attach_without(watched, files, &[])
    }

    /// The same, as if this kernel had not the parts whose names begin so (`fexit/`): what takes their place is seen at work where they
    /// would work too. For drills.
    pub fn attach_without(watched: Watched, files: &KernelFiles, without: &[&str]) -> Self {
        let rights = Rights::now();
        let found = Found::now(&watched);
        let (loaded, words, refused) = match load(files) {
            Ok((loaded, filters, words)) => (Some((loaded, Installed::new(filters))), Some(words), None),
            Err(error) => (None, None, Some(refused(&error, &rights))),
        };
        let (standings, journal) = (Vec::new(), Journal::default());
        let (late_seen, lost_seen, events_read, chatter_read) = (0, 0, 0, 0);
        let mut inside = Inside { loaded, standings, found, late_seen, events_read, chatter_read, journal, lost_seen, rights };
        inside.install(words.as_ref());
        inside.standings = match refused {
            None => DUTIES.iter().map(|duty| inside.try_ways(duty, without)).collect(),
            Some(state) => DUTIES.iter().map(|duty| Standing::refused(duty, &state)).collect(),
        };
        if let Some((loaded, _)) = &mut inside.loaded {
            loaded.forget_types();
        }
        Self { watched, words, inside: Mutex::new(inside), events: broadcast::Sender::new(BACKLOG) }
    }

    /// The events from now on. Who is slow misses some, as the channel tells.
    pub fn events(&self) -> broadcast::Receiver<Arc<Event>> {
        self.events.subscribe()
    }

    /// Detaches a part by its name in the report, as if somebody else had done it: it is found and mended like any other loss. For
    /// drills. Says whether there was one to detach.
    pub fn detach(&self, part: &str) -> bool {
        let mut inside = self.lock();
        let tried = inside.standings.iter_mut().flat_map(|standing| &mut standing.ways).find(|tried| tried.way.name == part);
        tried.is_some_and(|tried| !std::mem::take(&mut tried.attached).is_empty())
    }

    /// How often the programs of a part have run and for how many nanoseconds; zeros while the kernel's statistics
    /// (`kernel.bpf_stats_enabled`) are off.
    pub fn cost(&self, part: &str) -> Option<(u64, u64)> {
        let inside = self.lock();
        let (loaded, _) = inside.loaded.as_ref()?;
        let tried = inside.standings.iter().flat_map(|standing| &standing.ways).find(|tried| tried.way.name == part)?;
        let costs = tried.way.programs.iter().filter_map(|(program, _)| loaded.cost(program));
        costs.reduce(|sum, cost| (sum.0 + cost.0, sum.1 + cost.1))
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        // A panic while the lock was held can only have left something to mend.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, at: u32) -> u64 {
        self.words.as_ref().map_or(0, |words| words.load(at as usize))
    }

    /// Reads the rings to their ends.
    fn read(&self, inside: &mut Inside) {
        let Some((loaded, _)) = &mut inside.loaded else { return };
        let publish = |bytes: &[u8]| {
            let event = Event::read(bytes)?;
            tracing::debug!(?event, "seen by a program");
            let says = event.says();
            // Nobody listens, most of the time.
            let _none = self.events.send(Arc::new(event));
            Some(says)
        };
        while let Some(record) = loaded.events.next() {
            match publish(&record) {
                Some(Says::Nothing) => {}
                Some(Says::Changed(change)) => inside.journal.push(change),
                Some(Says::Unplaced) | None => inside.journal.incomplete = true,
            }
            inside.events_read += 1;
        }
        while let Some(record) = loaded.chatter.next() {
            let _nothing = publish(&record);
            inside.chatter_read += 1;
        }
    }

    /// Puts the filter right where roots or directories have come or gone. Says whether they had.
    fn refresh(&self, inside: &mut Inside) -> bool {
        if self.words.is_none() {
            return false;
        }
        // Before the look: a root that appears during it is looked for again.
        let late = self.word(words::LATE);
        let found = Found::now(&self.watched);
        let changed = found != inside.found;
        if changed || late != inside.late_seen {
            inside.found = found;
            inside.install(self.words.as_ref());
        }
        changed
    }
}

impl Source for Ebpf {
    fn name(&self) -> &'static str {
        "ebpf"
    }

    fn parts(&self) -> Vec<PartReport> {
        let inside = self.lock();
        let part = |kind: Kind, tried: &Tried| PartReport {
            name: tried.way.name.to_owned(),
            state: tried.state.clone(),
            events: if tried.state == State::Attached { self.word(words::SEEN + kind as u32) } else { 0 },
            losses: tried.losses,
        };
        let mut parts: Vec<PartReport> = inside
            .standings
            .iter()
            .flat_map(|standing| standing.ways.iter().map(|tried| part(standing.duty.kind, tried)))
            .collect();
        if inside.loaded.is_some() {
            let ring = |name: &str, events, lost| PartReport {
                name: name.to_owned(),
                state: State::Attached,
                events,
                losses: self.word(lost),
            };
            parts.push(ring("ring/events", inside.events_read, words::EVENTS_LOST));
            parts.push(ring("ring/chatter", inside.chatter_read, words::CHATTER_LOST));
        }
        parts
    }

    fn sees(&self) -> Sees {
        self.lock().sees()
    }

    fn changes(&self) -> Option<Vec<Change>> {
        let mut inside = self.lock();
        let mut all_read = false;
        for _ in 0..TRIES {
            self.read(&mut inside);
            // A program counts, then reserves a record or counts it as lost, then submits it. So at any moment no more are read and lost
            // than are counted, and where the numbers are equal, these are the same changes. The count is looked at last.
            let lost = self.word(words::EVENTS_LOST);
            inside.journal.incomplete |= lost != inside.lost_seen;
            inside.lost_seen = lost;
            if self.word(words::CHANGES) == inside.events_read + lost {
                all_read = true;
                break;
            }
            std::thread::yield_now();
        }
        let sees = inside.sees();
        let whole = Sees::CGROUPS.and(Sees::CPUSETS).without(sees) == Sees::NOTHING;
        inside.journal.take().filter(|_| all_read && whole)
    }

    fn needs(&self) -> Needed {
        // To attach anew what is lost. Where not even the maps could be made, nothing is ever tried again.
        let loaded = self.lock().loaded.is_some();
        Needed { bpf: loaded, perfmon: loaded, sys_admin: false }
    }

    fn wake(&self) -> io::Result<Option<OwnedFd>> {
        let inside = self.lock();
        inside.loaded.as_ref().map(|(loaded, _)| loaded.events.as_fd().try_clone_to_owned()).transpose()
    }

    fn begin(&self, epoch: &Arc<Epoch>) {
        let inside = self.lock();
        let Some((loaded, _)) = &inside.loaded else { return };
        let added = loaded.words().map_err(|error| error.to_string());
        if let Err(error) = added.and_then(|words| epoch.add_words(words).map_err(|error| error.to_string())) {
            tracing::error!(%error, "the programs' words cannot be used");
        }
    }

    fn woken(&self, epoch: &Epoch) {
        let mut inside = self.lock();
        self.read(&mut inside);
        if self.word(words::LATE) != inside.late_seen {
            // What was seen meanwhile has counted, whatever it was; nothing was missed.
            self.refresh(&mut inside);
        }
        drop(inside);
        epoch.wake();
    }

    fn mend(&self, epoch: &Epoch) {
        let mut inside = self.lock();
        self.read(&mut inside);
        let moved = self.refresh(&mut inside);
        let lost = inside.mend();
        inside.journal.incomplete |= moved || lost;
        drop(inside);
        if moved || lost {
            epoch.bump(ChangeKind::Socket);
        }
    }
}

impl std::fmt::Debug for Ebpf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ebpf").field("parts", &self.parts()).finish_non_exhaustive()
    }
}

// === impl Inside ===

impl Inside {
    fn sees(&self) -> Sees {
        let works = |kind| self.standings.iter().filter(|standing| standing.duty.kind == kind).all(Standing::works);
        let mut sees = Sees::NOTHING;
        if works(Kind::Mkdir) && works(Kind::Rmdir) {
            sees = sees.and(Sees::CGROUPS);
        }
        if works(Kind::Cpuset) {
            sees = sees.and(Sees::CPUSETS);
        }
        if works(Kind::Rename) && self.found.missing.is_empty() {
            sees = sees.and(Sees::KUBELET);
        }
        sees
    }

    /// Puts what was found in force.
    fn install(&mut self, words: Option<&Words>) {
        let (Some((_, installed)), Some(words)) = (&mut self.loaded, words) else { return };
        self.late_seen = words.load(words::LATE as usize);
        installed.install(&self.found.filter(self.late_seen));
    }

    /// Tries a duty's ways until one works, passing over those whose names begin with one of `without`.
    fn try_ways(&mut self, duty: &'static Duty, without: &[&str]) -> Standing {
        let mut standing = Standing { duty, ways: Vec::new() };
        let Some((loaded, _)) = &mut self.loaded else { return standing };
        for way in duty.ways {
            if !loaded.suits(way) {
                continue;
            }
            let mut tried = Tried { way, state: State::Attached, attached: Vec::new(), losses: 0, missed: 0 };
            let passed_over = without.iter().any(|begin| way.name.starts_with(begin));
            let found = if passed_over {
                Err(State::Absent { why: "passed over, as it was asked for".to_owned() })
            } else {
                loaded.attach(way, &self.rights)
            };
            match found {
                Ok(attached) => tried.attached = attached,
                Err(state) => tried.state = state,
            }
            standing.ways.push(tried);
            if standing.works() {
                break;
            }
        }
        standing
    }

    /// Finds what was detached or has missed something, and puts it back. Says whether there was anything.
    fn mend(&mut self) -> bool {
        let Some((loaded, _)) = &mut self.loaded else { return false };
        let mut any = false;
        for tried in self.standings.iter_mut().flat_map(|standing| &mut standing.ways) {
            if !matches!(tried.state, State::Attached | State::Lost { .. }) {
                continue;
            }
            let missed = tried.attached.iter().map(|attached| loaded.missed(attached)).sum();
            if missed > tried.missed {
                tried.losses += missed - tried.missed;
                tried.missed = missed;
                any = true;
            }
            let gone = if tried.attached.is_empty() {
                Some("it was detached".to_owned())
            } else {
                tried.attached.iter().find_map(|attached| attached.check().err())
            };
            let Some(why) = gone else { continue };
            if tried.state == State::Attached {
                tried.losses += 1;
                any = true;
                tracing::warn!(part = tried.way.name, why, "a program was detached");
            }
            tried.attached.clear();
            match loaded.attach(tried.way, &self.rights) {
                Ok(attached) => {
                    (tried.attached, tried.state) = (attached, State::Attached);
                    any = true;
                }
                Err(state) => tried.state = State::Lost { why: format!("{why}; then {state}") },
            }
        }
        any
    }
}

// === impl Standing ===

impl Standing {
    /// Every way is refused for the same reason.
    fn refused(duty: &'static Duty, state: &State) -> Self {
        let tried =
            duty.ways.iter().take(1).map(|way| Tried { way, state: state.clone(), attached: Vec::new(), losses: 0, missed: 0 });
        Self { duty, ways: tried.collect() }
    }

    fn works(&self) -> bool {
        self.ways.last().is_some_and(|tried| tried.state == State::Attached && !tried.attached.is_empty())
    }
}

fn load(files: &KernelFiles) -> Result<(Loaded, SharedWords, Words), LoadError> {
    let loaded = Loaded::new(files)?;
    let filters = loaded.filters()?;
    let words = loaded.words().map_err(LoadError::Mapping)?;
    Ok((loaded, filters, words))
}

/// What it means that there are no maps.
fn refused(error: &LoadError, rights: &Rights) -> State {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(error) = inner.downcast_ref::<io::Error>() {
            return refusal::of_io(error, "making the maps", None, rights);
        }
        cause = inner.source();
    }
    State::Absent { why: error.to_string() }
}
