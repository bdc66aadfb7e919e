//! The cases: which attack, from how many clients and processes, and against what proxy.

/// One case.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) attack: &'static str,
    /// Clients that abuse, each a pod.
    pub(crate) clients: usize,
    /// Processes of each.
    pub(crate) processes: usize,
    pub(crate) trouble: Trouble,
    /// The honest come when the abuse is under way.
    pub(crate) late: bool,
    /// Why it does not hold yet: then what is wrong is told, and is no failure.
    pub(crate) open: Option<&'static str>,
}

const QUEUE: &str = "who dials faster than we accept fills the kernel's queue, and the connect of others fails with EAGAIN";
const MEMORY: &str =
    "memory is not bounded by clients, but by connections in all: 122 MiB with 512 that flood, 77 MiB with 10,000 idle ones";

/// What is done to the proxy itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// It may have this many file descriptors.
    Descriptors(u32),
    /// It is stopped for a second while the abusers fill its accept queue.
    Stopped,
}

pub(crate) const ALL: &[Case] = &[
    case("request flood, 1 connection", "requests"),
    case("request flood, 64 connections", "requests-64"),
    Case { processes: 64, ..case("request flood, 64 processes", "requests") },
    Case { clients: 8, ..case("request flood, 8 clients of 64 connections", "requests-64").open(MEMORY) },
    case("forced refreshes", "forced-refresh"),
    case("Get of random names", "random-gets"),
    case("connection flood", "connections").late().open(QUEUE),
    case("connection churn", "churn").late().open(QUEUE),
    case("a connection for every call", "dial-for-every-call").late(),
    case("10,000 idle connections", "idle").late(),
    Case { clients: 100, ..case("10,000 idle connections of 100 clients", "idle-of-many").late().open(MEMORY) },
    case("processes that live for one call", "pid-churn").late(),
    case("streams without end", "streams"),
    case("rapid reset", "rapid-reset"),
    case("streams reset by their errors", "reset-by-us"),
    case("PING flood", "pings"),
    case("PING flood, answers unread", "pings-unread"),
    case("SETTINGS flood", "settings"),
    case("PRIORITY flood", "priorities"),
    case("unknown frames", "unknown-frames"),
    case("empty DATA", "empty-data"),
    case("empty CONTINUATION", "empty-continuations"),
    case("endless headers", "endless-headers"),
    case("HPACK bomb", "hpack-bomb"),
    case("giant request", "giant-request"),
    case("window of 1 byte", "window-of-1"),
    case("window of 0 bytes", "window-of-0"),
    case("never reading", "never-reading"),
    case("slow preface", "slow-preface").late(),
    case("slow headers", "slow-headers").late(),
    case("slow body", "slow-body").late(),
    case("garbage", "garbage").late(),
    case("garbage after the preface", "garbage-after-preface").late(),
    Case { clients: 8, trouble: Trouble::Descriptors(256), ..case("file descriptors run out", "idle-of-many") },
    Case { processes: 4, trouble: Trouble::Stopped, ..case("full accept queue", "fill-backlog") },
];

const fn case(name: &'static str, attack: &'static str) -> Case {
    Case { name, attack, clients: 1, processes: 1, trouble: Trouble::None, late: false, open: None }
}

// === impl Case ===

impl Case {
    const fn late(self) -> Self {
        Self { late: true, ..self }
    }

    const fn open(self, why: &'static str) -> Self {
        Self { open: Some(why), ..self }
    }
}
