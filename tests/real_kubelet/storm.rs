//! Many clients that call List at a steady rate, each a process in a cgroup of its own, and what they saw.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::SystemTime;

use crate::cgroup::Cgroup;

/// Microseconds since 1970, by the node's clock: the clients' own measure.
pub(crate) type Micros = u64;

pub(crate) fn now() -> Micros {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros().try_into().unwrap()
}

/// Clients at work.
pub(crate) struct Storm {
    clients: Vec<(Child, JoinHandle<String>)>,
    cgroups: Vec<Cgroup>,
}

/// One call of List, as its client saw it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) start: Micros,
    pub(crate) end: Micros,
    pub(crate) code: u32,
    /// Marked as an answer from before the kubelet went away.
    pub(crate) stale: bool,
    /// The error's text.
    pub(crate) text: String,
    /// Devices by pod, `namespace/name`.
    pub(crate) pods: BTreeMap<String, u32>,
}

// === impl Storm ===

impl Storm {
    pub(crate) fn start(socket: &Path, clients: u32, calls_per_second: u32) -> Self {
        let bin = PathBuf::from(std::env::var_os("CLIENTS_BIN").expect("CLIENTS_BIN names the folder with the real clients"));
        let mut storm = Self { clients: Vec::new(), cgroups: Vec::new() };
        for number in 0..clients {
            let cgroup = Cgroup::new(&format!("podresources-client-{}-{number}", std::process::id()));
            let mut process = Command::new(bin.join("storm-1"))
                .arg(socket)
                .arg(calls_per_second.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            cgroup.add(process.id());
            let mut output = process.stdout.take().unwrap();
            let reader = thread::spawn(move || {
                let mut said = String::new();
                output.read_to_string(&mut said).map(|_| said).unwrap()
            });
            storm.clients.push((process, reader));
            storm.cgroups.push(cgroup);
        }
        storm
    }

    /// Ends the clients and returns everything they saw, in the order of time.
    pub(crate) fn end(mut self) -> Vec<Seen> {
        for (process, _) in &mut self.clients {
            drop(process.stdin.take());
        }
        let mut all = Vec::new();
        for (mut process, reader) in self.clients.drain(..) {
            assert!(process.wait().unwrap().success());
            all.extend(reader.join().unwrap().lines().map(Seen::read));
        }
        all.sort_by_key(|seen| seen.start);
        all
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        // Only after a failed test there are some left.
        for (process, _) in &mut self.clients {
            if process.kill().and_then(|()| process.wait()).is_err() {
                eprintln!("client {} could not be ended", process.id());
            }
        }
    }
}

// === impl Seen ===

impl Seen {
    fn read(line: &str) -> Self {
        let mut words = line.splitn(5, ' ');
        let mut word = || words.next().unwrap_or_else(|| panic!("a short line: {line:?}"));
        let (start, end, code) = (word().parse().unwrap(), word().parse().unwrap(), word().parse().unwrap());
        let stale = word() == "true";
        let rest = word();
        let pods = if code == 0 { rest.split(',').filter_map(pod).collect() } else { BTreeMap::new() };
        let text = if code == 0 { String::new() } else { rest.to_owned() };
        Self { start, end, code, stale, text, pods }
    }
}

fn pod(word: &str) -> Option<(String, u32)> {
    let (name, devices) = word.split_once('=')?;
    Some((name.to_owned(), devices.parse().unwrap()))
}
