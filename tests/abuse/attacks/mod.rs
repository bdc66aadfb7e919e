//! What bad clients send: each attack is one connection's work, or one round of it, done over and over by each of its threads.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::abuser::done;
use crate::frames::{PREFACE, SETTINGS, frame};

mod calls;
mod connections;
mod control;
mod slow;

/// The most that a client may open its window to (RFC 9113, 6.9.1).
const WIDE: u32 = (1 << 31) - 1;
const WINDOW_UPDATE: u8 = 8;
const INITIAL_WINDOW_SIZE: u16 = 4;
pub(super) const LIST: &str = "/v1.PodResourcesLister/List";
pub(super) const GET: &str = "/v1.PodResourcesLister/Get";

/// One way to misbehave.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// How many threads of a process do it at the same time, over and over; none: it is done once, and the process ends.
    pub(crate) threads: usize,
    /// One connection, to its end, or one round.
    pub(crate) once: fn(&Path) -> io::Result<()>,
}

// === impl Attack ===

impl Attack {
    const fn new(name: &'static str, threads: usize, once: fn(&Path) -> io::Result<()>) -> Self {
        Self { name, threads, once }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        all().find(|attack| attack.name == name)
    }
}

fn all() -> impl Iterator<Item = Attack> {
    [calls::attacks(), connections::attacks(), control::attacks(), slow::attacks()].into_iter().flatten()
}

/// A connection that has said hello, with its windows this wide for each stream and wide open for the whole.
fn greeted(path: &Path, window: u32) -> io::Result<UnixStream> {
    let mut socket = UnixStream::connect(path)?;
    let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
    let open = frame(WINDOW_UPDATE, 0, 0, &(WIDE - 65_535).to_be_bytes());
    socket.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &setting), &open].concat())?;
    Ok(socket)
}

/// A connection whose replies are read, and thrown away, by a thread that ends with it.
fn drained(path: &Path) -> io::Result<UnixStream> {
    let socket = greeted(path, WIDE)?;
    let mut reader = socket.try_clone()?;
    thread::spawn(move || {
        let mut scratch = vec![0; 64 * 1024];
        while reader.read(&mut scratch).is_ok_and(|read| read > 0) {}
        // The writer learns of the end too.
        drop(reader.shutdown(std::net::Shutdown::Both));
    });
    Ok(socket)
}

/// Sends what `batch` makes until the connection ends; each batch counts as so many.
fn pour(socket: &mut UnixStream, count: u64, mut batch: impl FnMut() -> Vec<u8>) -> io::Result<()> {
    loop {
        socket.write_all(&batch())?;
        done(count);
    }
}

/// Sends the same bytes until the connection ends.
fn pour_same(socket: &mut UnixStream, count: u64, bytes: &[u8]) -> io::Result<()> {
    loop {
        socket.write_all(bytes)?;
        done(count);
    }
}

/// Stream numbers of a client, until they run out and the connection has to be given up.
fn streams() -> impl Iterator<Item = u32> {
    (1..1 << 31).step_by(2)
}

/// Reads until the other end closes.
fn read_to_the_end(socket: &mut UnixStream) -> io::Result<()> {
    let mut scratch = [0; 4096];
    while socket.read(&mut scratch)? > 0 {}
    Ok(())
}

fn nap(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}
