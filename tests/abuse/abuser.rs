//! The process of an abusive client: this program again, as a child, in the cgroup of a pod of its own.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, nice, setrlimit};

use crate::attacks::Attack;

/// The first argument of such a process; then the attack's name, the socket, and the cgroups to join.
pub(crate) const AS: &str = "--as";
/// It ends by itself after this, whatever became of its parent.
const AT_MOST: Duration = Duration::from_mins(3);

/// What it has done so far: connections, frames, whatever its attack is made of.
static DONE: AtomicU64 = AtomicU64::new(0);

/// Processes that abuse; ended when dropped.
pub(crate) struct Abusers(Vec<Child>);

/// Something more of the attack is done.
pub(crate) fn done(count: u64) {
    DONE.fetch_add(count, Relaxed);
}

/// What such a process does. It ends when its standard input does.
pub(crate) fn main(mut arguments: impl Iterator<Item = String>) {
    let name = arguments.next().expect("the attack's name");
    let socket = PathBuf::from(arguments.next().expect("a socket"));
    for cgroup in arguments {
        std::fs::write(Path::new(&cgroup).join("cgroup.procs"), "0").unwrap_or_else(|error| panic!("{cgroup}: {error}"));
    }
    // The honest, and the proxy, come first where CPUs are few.
    nice(19).unwrap();
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let attack = Attack::named(&name).unwrap_or_else(|| panic!("no attack {name}"));
    thread::spawn(move || {
        thread::sleep(AT_MOST);
        end();
    });
    if attack.threads == 0 {
        drop((attack.once)(&socket));
        end();
    }
    for _ in 0..attack.threads {
        let socket = socket.clone();
        thread::spawn(move || {
            loop {
                // Whatever ends a connection: the next one begins.
                if (attack.once)(&socket).is_err() {
                    thread::sleep(Duration::from_micros(500));
                }
            }
        });
    }
    drop(io::stdin().read_to_end(&mut Vec::new()));
    end();
}

fn end() -> ! {
    drop(writeln!(io::stdout(), "{}", DONE.load(Relaxed)));
    std::process::exit(0)
}

// === impl Abusers ===

impl Abusers {
    /// One process in these cgroups for each entry.
    pub(crate) fn start(attack: &str, socket: &Path, cgroups: &[Vec<PathBuf>]) -> Self {
        let start = |cgroups: &Vec<PathBuf>| {
            let mut command = Command::new("/proc/self/exe");
            command.args([AS, attack]).arg(socket).args(cgroups);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
        };
        Self(cgroups.iter().map(start).collect())
    }

    /// Ends them, and tells how much they did altogether.
    pub(crate) fn end(mut self) -> u64 {
        for child in &mut self.0 {
            drop(child.stdin.take());
        }
        let mut all = 0;
        for mut child in self.0.drain(..) {
            let mut said = String::new();
            child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            assert!(child.wait().unwrap().success(), "an abuser failed");
            all += said.trim().parse::<u64>().unwrap();
        }
        all
    }
}

impl Drop for Abusers {
    fn drop(&mut self) {
        // Only after a failure there are some left.
        for child in &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}
