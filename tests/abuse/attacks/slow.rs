//! Clients that take their time: to say hello, to say what they want, to read what they get.

use std::io::{self, Write as _};
use std::path::Path;

use super::{Attack, LIST, WIDE, WINDOW_UPDATE, greeted, nap, streams};
use crate::abuser::done;
use crate::frames::{PREFACE, call, greeting, head};

/// As many as one client may have.
const CONNECTIONS: usize = 128;
/// Calls that are open at a time on one connection.
const OPEN: usize = 32;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        Attack::new("slow-preface", CONNECTIONS, |path| drip(path, &[], PREFACE)),
        Attack::new("slow-headers", CONNECTIONS, |path| drip(path, &greeting(), &head(1, LIST, "localhost"))),
        Attack::new("slow-body", CONNECTIONS, |path| drip(path, &[greeting(), head(1, LIST, "localhost")].concat(), &[0; 64])),
        Attack::new("window-of-1", 16, window_of_one),
        Attack::new("never-reading", CONNECTIONS, |path| unread(path, WIDE)),
        Attack::new("window-of-0", CONNECTIONS, |path| unread(path, 0)),
    ]
}

/// One byte now and then.
fn drip(path: &Path, first: &[u8], bytes: &[u8]) -> io::Result<()> {
    let mut socket = std::os::unix::net::UnixStream::connect(path)?;
    socket.write_all(first)?;
    for byte in bytes {
        socket.write_all(&[*byte])?;
        done(1);
        nap(200);
    }
    Ok(())
}

/// Takes replies byte by byte.
fn window_of_one(path: &Path) -> io::Result<()> {
    use crate::frames::frame;
    let mut socket = super::drained(path)?;
    socket.write_all(&frame(crate::frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]))?;
    let open: Vec<u32> = streams().take(OPEN).collect();
    socket.write_all(&open.iter().flat_map(|stream| call(*stream, LIST, "localhost")).collect::<Vec<_>>())?;
    let more: Vec<u8> = open.iter().flat_map(|stream| frame(WINDOW_UPDATE, 0, *stream, &1_u32.to_be_bytes())).collect();
    super::pour_same(&mut socket, OPEN as u64, &more)
}

/// Calls, and reads nothing.
fn unread(path: &Path, window: u32) -> io::Result<()> {
    let mut socket = greeted(path, window)?;
    for stream in streams() {
        socket.write_all(&call(stream, LIST, "localhost"))?;
        done(1);
    }
    Ok(())
}
