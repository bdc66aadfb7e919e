//! Puts the programs into the kernel, one by one: what one is refused says nothing of the others.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya::maps::{Map, MapData, RingBuf};
use aya::programs::links::FdLink;
use aya::programs::{Program, ProgramError, kprobe::KProbeLink, trace_point::TracePointLink};
use aya::{Btf as AyaBtf, EbpfLoader, VerifierLogLevel};
use podresources_proxy_ebpf_common::{Filters, TracepointOffsets};

use super::btf::{Btf, BtfError};
use super::format::{self, FormatError};
use super::kernel::{Kernel, RenameForm};
use super::programs::{Hook, Needs, Way};
use super::refusal::{self, Rights};
use crate::change::{State, Words};
use crate::sys::SharedWords;

/// The object for this architecture, as `cargo xtask build-ebpf` made it.
#[cfg(target_arch = "x86_64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../ebpf/objects/x86_64.o");
#[cfg(target_arch = "aarch64")]
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../ebpf/objects/aarch64.o");
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static OBJECT: &[u8] = &[];

/// Where the kernel describes itself.
#[derive(Clone, Debug)]
pub struct KernelFiles {
    /// `/sys/kernel/btf/vmlinux`
    pub btf: PathBuf,
    /// Where tracefs may be mounted.
    pub tracefs: Vec<PathBuf>,
}

/// Why there are no programs at all.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// The kernel did not take the object's maps.
    #[error("the maps cannot be made: {0}")]
    Maps(#[source] Box<aya::EbpfError>),
    /// A map of the kernel's cannot be mapped.
    #[error("a map cannot be mapped into memory: {0}")]
    Mapping(#[source] io::Error),
    /// The object lacks something, which no build of ours does.
    #[error("the object has no {0}")]
    Object(&'static str),
}

/// The object in the kernel. Its programs are loaded when they are attached.
pub(super) struct Loaded {
    bpf: aya::Ebpf,
    /// For the loading of programs that are hooked by type; a large thing, and dropped when that is done.
    btf: Option<AyaBtf>,
    kernel: Kernel,
    record: Result<TracepointOffsets, FormatError>,
    words: OwnedFd,
    pub(super) events: RingBuf<MapData>,
    pub(super) chatter: RingBuf<MapData>,
}

/// A program at its hook.
pub(super) struct Attached {
    link: Link,
    program: &'static str,
}

enum Link {
    /// A link that can be asked, and what it said at first: its id and its program's.
    Asked { link: FdLink, ids: (u32, u32) },
    /// One that old kernels give no answer about, or that has none to ask. Dropping it detaches.
    Silent { _link: SilentLink },
}

#[expect(dead_code, reason = "held for their drop")]
enum SilentLink {
    Fd(FdLink),
    Probe(KProbeLink),
    Classic(TracePointLink),
}

// === impl KernelFiles ===

impl Default for KernelFiles {
    fn default() -> Self {
        Self { btf: PathBuf::from("/sys/kernel/btf/vmlinux"), tracefs: format::TRACEFS.map(PathBuf::from).to_vec() }
    }
}

// === impl Loaded ===

impl Loaded {
    /// Makes the maps, with the running kernel's offsets in the programs' constants.
    pub(super) fn new(files: &KernelFiles) -> Result<Self, LoadError> {
        let kernel = look_up(&files.btf);
        let tracefs: Vec<&Path> = files.tracefs.iter().map(PathBuf::as_path).collect();
        let record = format::read(&tracefs);
        let known = record.clone().unwrap_or_default();
        // Kernels before 5.11 count maps as locked memory; where this may not be raised, they say so when the maps are made.
        let unlimited = rustix::process::Rlimit { current: None, maximum: None };
        let _refused = rustix::process::setrlimit(rustix::process::Resource::Memlock, unlimited);
        let mut bpf = EbpfLoader::new()
            .btf(None)
            .verifier_log_level(VerifierLogLevel::default())
            .override_global("OFFSETS", kernel.offsets.integers(), true)
            .override_global("TRACEPOINT", known.integers(), true)
            .load(OBJECT)
            .map_err(|error| LoadError::Maps(Box::new(error)))?;
        let ring = |map: Option<Map>| {
            let map = map.ok_or(LoadError::Object("ring buffer"))?;
            RingBuf::try_from(map).map_err(|error| LoadError::Maps(Box::new(error.into())))
        };
        let (events, chatter) = (ring(bpf.take_map("EVENTS"))?, ring(bpf.take_map("CHATTER"))?);
        let words = array(&bpf, "WORDS")?;
        let btf = kernel.cgroup.is_ok().then(|| AyaBtf::parse_file(&files.btf, aya::Endianness::default()).ok()).flatten();
        Ok(Self { bpf, btf, kernel, record, words, events, chatter })
    }

    /// The words, mapped once more.
    pub(super) fn words(&self) -> io::Result<Words> {
        Words::map(&self.words)
    }

    /// The filter's memory.
    pub(super) fn filters(&self) -> Result<SharedWords, LoadError> {
        let map = array(&self.bpf, "FILTERS")?;
        SharedWords::map(map, size_of::<Filters>()).map_err(LoadError::Mapping)
    }

    /// Whether a way is one for kernels like this.
    pub(super) fn suits(&self, way: &Way) -> bool {
        match (&self.kernel.rename, way.needs) {
            (Ok(form), Needs::RenameArguments) => *form == RenameForm::Arguments,
            (Ok(form), Needs::RenameData) => *form == RenameForm::Data,
            // One line is enough to say that nothing is known of it.
            (Err(_), Needs::RenameArguments) => false,
            _ => true,
        }
    }

    /// Attaches a way's programs, all or none.
    pub(super) fn attach(&mut self, way: &Way, rights: &Rights) -> Result<Vec<Attached>, State> {
        self.known(way)?;
        let mut attached = Vec::new();
        for (program, hook) in way.programs {
            let Some(found) = self.bpf.program_mut(program) else {
                return Err(State::Absent { why: format!("the object has no program {program}") });
            };
            let link = link(found, *hook, self.btf.as_ref()).map_err(|error| refusal::of(&error, *hook, rights))?;
            attached.push(Attached { link, program });
        }
        Ok(attached)
    }

    /// Every program that may be loaded has been: they can be attached again without the kernel's types.
    pub(super) fn forget_types(&mut self) {
        self.btf = None;
    }

    /// Whether what a way's programs read is known. Nothing is loaded on a guess.
    fn known(&self, way: &Way) -> Result<(), State> {
        let absent = |why: String| Err(State::Absent { why });
        let needed = match way.needs {
            Needs::Cgroup => self.kernel.cgroup.clone(),
            Needs::File => self.kernel.cgroup.clone().and_then(|()| self.kernel.file.clone()),
            Needs::RenameArguments | Needs::RenameData => self.kernel.rename.clone().map(drop),
            Needs::Record => return self.record.clone().map(drop).or_else(|error| absent(error.to_string())),
        };
        if let Err(error) = needed {
            return absent(error.to_string());
        }
        for (_, hook) in way.programs {
            let (what, wanted) = match hook {
                Hook::Tracepoint { name, arguments } => (*name, *arguments),
                Hook::Exit { function, arguments } => (*function, *arguments),
                _ => continue,
            };
            let found = self.kernel.arguments.get(what).cloned().unwrap_or_else(|| Err(BtfError::Missing(what.to_owned())));
            match found {
                Ok(found) if found == wanted => {}
                Ok(found) => return absent(format!("{what} has {found} arguments on this kernel instead of {wanted}")),
                Err(error) => return absent(error.to_string()),
            }
        }
        Ok(())
    }

    /// What the kernel counts about a program: how often it was not run because it was running on that CPU already.
    pub(super) fn missed(&self, attached: &Attached) -> u64 {
        self.program_info(attached.program).and_then(|info| info.get("recursion_misses").copied()).unwrap_or(0)
    }

    /// How often a program ran and for how many nanoseconds, while the kernel's statistics are on.
    pub(super) fn cost(&self, program: &str) -> Option<(u64, u64)> {
        let info = self.program_info(program)?;
        Some((*info.get("run_cnt")?, *info.get("run_time_ns")?))
    }

    /// What `/proc/self/fdinfo` tells of a program's descriptor. Needs no rights.
    fn program_info(&self, program: &str) -> Option<HashMap<String, u64>> {
        use std::os::fd::AsRawFd as _;
        let descriptor = self.bpf.program(program)?.fd().ok()?.as_fd().as_raw_fd();
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}")).ok()?;
        let pair = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.trim().parse().ok()?))
        };
        Some(text.lines().filter_map(pair).collect())
    }
}

/// What the kernel's description of itself says.
fn look_up(path: &Path) -> Kernel {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return Kernel::unknown(&BtfError::Missing(format!("file {} ({error})", path.display()))),
    };
    match Btf::parse(&bytes) {
        Ok(btf) => Kernel::of(&btf),
        Err(error) => Kernel::unknown(&error),
    }
}

/// A descriptor of an array map.
fn array(bpf: &aya::Ebpf, name: &'static str) -> Result<OwnedFd, LoadError> {
    match bpf.map(name) {
        Some(Map::Array(map)) => map.fd().as_fd().try_clone_to_owned().map_err(LoadError::Mapping),
        _ => Err(LoadError::Object(name)),
    }
}

fn link(program: &mut Program, hook: Hook, btf: Option<&AyaBtf>) -> Result<Link, ProgramError> {
    let typed = || btf.ok_or(ProgramError::Btf(aya::BtfError::UnknownBtfType { type_id: 0 }));
    let loaded = program.fd().is_ok();
    match (program, hook) {
        (Program::BtfTracePoint(program), Hook::Tracepoint { name, .. }) => {
            if !loaded {
                program.load(name, typed()?)?;
            }
            let id = program.attach()?;
            Ok(Link::of(program.take_link(id)?.into()))
        }
        (Program::FExit(program), Hook::Exit { function, .. }) => {
            if !loaded {
                program.load(function, typed()?)?;
            }
            let id = program.attach()?;
            Ok(Link::of(program.take_link(id)?.into()))
        }
        (Program::KProbe(program), Hook::Entry { function } | Hook::Return { function }) => {
            if !loaded {
                program.load()?;
            }
            let id = program.attach(function, 0)?;
            Ok(Link::Silent { _link: SilentLink::Probe(program.take_link(id)?) })
        }
        (Program::TracePoint(program), Hook::Classic { name }) => {
            if !loaded {
                program.load()?;
            }
            let id = program.attach("cgroup", name)?;
            Ok(Link::Silent { _link: SilentLink::Classic(program.take_link(id)?) })
        }
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

// === impl Link ===

impl Link {
    fn of(link: FdLink) -> Self {
        match link.info() {
            Ok(info) => Self::Asked { ids: (info.id(), info.program_id()), link },
            Err(_) => Self::Silent { _link: SilentLink::Fd(link) },
        }
    }
}

// === impl Attached ===

impl Attached {
    /// Whether it is still in its place, as far as the kernel tells.
    pub(super) fn check(&self) -> Result<(), String> {
        let Link::Asked { link, ids } = &self.link else { return Ok(()) };
        match link.info() {
            Ok(info) if (info.id(), info.program_id()) == *ids => Ok(()),
            Ok(info) => Err(format!("its link {} is now {} to program {}", ids.0, info.id(), info.program_id())),
            Err(error) => Err(format!("its link is gone: {error}")),
        }
    }
}
