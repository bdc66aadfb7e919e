//! What must hold for every input, target by target: `fuzz/` looks for inputs that break it, `main.rs` replays those that were kept.

mod btf;
mod cgroup;
mod config;
mod cpuset;
mod host;
mod mend;
mod mend_h2;
mod reply;
mod request;
mod saved;
mod source;

/// A property: panics where it does not hold.
pub(crate) type Check = fn(&[u8]);

/// All of them, by their names.
pub(crate) const TARGETS: [(&str, Check); 10] = [
    ("mend", mend::check),
    ("mend_h2", mend_h2::check),
    ("cgroup", cgroup::check),
    ("config", config::check),
    ("request", request::check),
    ("reply", reply::check),
    ("saved", saved::check),
    ("btf", btf::check),
    ("cpuset", cpuset::check),
    ("host", host::check),
];
