//! Connections: many, idle, gone at once, from processes that live for one call.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Attack, LIST, WIDE, greeted, nap};
use crate::abuser::{AS, done};
use crate::frames::{call, greeting};

/// Connections that one process holds before it lets all of them go.
const FLOOD: usize = 2_000;
const IDLE: usize = 10_000;
/// Of each of a hundred clients.
const IDLE_OF_MANY: usize = 100;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        Attack::new("connections", 2, |path| hold(path, FLOOD, &[]).map(drop)),
        Attack::new("churn", 8, churn),
        Attack::new("dial-for-every-call", 8, dial_for_every_call),
        Attack::new("idle", 1, |path| hold(path, IDLE, &greeting()).map(wait)),
        Attack::new("idle-of-many", 1, |path| hold(path, IDLE_OF_MANY, &greeting()).map(wait)),
        Attack::new("fill-backlog", 8, |path| hold(path, FLOOD, &[]).map(wait)),
        Attack::new("pid-churn", 4, pid_churn),
        Attack::new("one-call", 0, one_call),
    ]
}

/// So many connections, each with this said.
fn hold(path: &Path, count: usize, said: &[u8]) -> io::Result<Vec<UnixStream>> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut socket = UnixStream::connect(path)?;
        // Those over the limit are closed already.
        if socket.write_all(said).is_ok() {
            held.push(socket);
        }
        done(1);
    }
    Ok(held)
}

/// Holds them until the process ends.
fn wait(_held: Vec<UnixStream>) {
    loop {
        nap(1_000);
    }
}

fn churn(path: &Path) -> io::Result<()> {
    drop(UnixStream::connect(path)?);
    done(1);
    Ok(())
}

fn dial_for_every_call(path: &Path) -> io::Result<()> {
    let mut socket = greeted(path, WIDE)?;
    socket.write_all(&call(1, LIST, "localhost"))?;
    let read = socket.read(&mut [0; 4096])?;
    done(u64::from(read > 0));
    Ok(())
}

/// A process that has gone before it can be looked at.
fn pid_churn(path: &Path) -> io::Result<()> {
    let mut command = Command::new("/proc/self/exe");
    let mut child = command.args([AS, "one-call"]).arg(path).stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    child.wait()?;
    done(1);
    Ok(())
}

fn one_call(path: &Path) -> io::Result<()> {
    greeted(path, WIDE)?.write_all(&call(1, LIST, "localhost"))
}
