//! How long the kernel's queue of connections is that nobody has accepted yet.
//!
//! Where it is full, `connect` fails with EAGAIN (or waits), and nothing of that ever reaches us: such connects cannot be counted. But
//! the queue can be asked for, by `sock_diag(7)`, so that a full one can be told from refusals.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::fstat;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SOCK_DIAG, recv, send, socket_with};

/// Asks after one listening socket.
#[derive(Debug)]
pub(super) struct Backlog {
    netlink: OwnedFd,
    inode: u32,
}

/// A look at the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Connections that nobody has accepted yet.
    pub length: u32,
    /// How many there may be.
    pub limit: u32,
}

/// `SOCK_DIAG_BY_FAMILY`, the kind of request and of reply (`linux/sock_diag.h`).
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
const AF_UNIX: u8 = 1;
/// `UDIAG_SHOW_RQLEN`, what is asked for, and `UNIX_DIAG_RQLEN`, the attribute that answers (`linux/unix_diag.h`).
const SHOW_LENGTH: u32 = 0x10;
const LENGTH: u16 = 4;
/// Bytes of `struct nlmsghdr`, `struct unix_diag_req`, `struct unix_diag_msg` and `struct nlattr`.
const HEADER: usize = 16;
const ASKED: usize = 24;
const LENGTH_OF_REQUEST: u32 = 40;
const TOLD: usize = 16;
const ATTRIBUTE: usize = 4;

// === impl Backlog ===

impl Backlog {
    /// Of this listening Unix socket. `None` where the kernel has no `unix_diag`, or forbids it.
    pub(super) fn of(listener: &impl AsFd) -> Option<Self> {
        let inode = u32::try_from(fstat(listener).ok()?.st_ino).ok()?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let netlink = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG)).ok()?;
        let backlog = Self { netlink, inode };
        backlog.look().is_some().then_some(backlog)
    }

    /// Two system calls, which never wait.
    pub(super) fn look(&self) -> Option<Queue> {
        send(&self.netlink, &request(self.inode), SendFlags::empty()).ok()?;
        let mut reply = [0; 256];
        let (count, _) = recv(&self.netlink, &mut reply[..], RecvFlags::empty()).ok()?;
        read(&reply[..count])
    }
}

fn request(inode: u32) -> Vec<u8> {
    const ANY_COOKIE: [u8; 8] = [0xff; 8];
    const ANY_STATE: u32 = u32::MAX;
    const { assert!(HEADER + ASKED == LENGTH_OF_REQUEST as usize) };
    let header = [&LENGTH_OF_REQUEST.to_ne_bytes()[..], &BY_FAMILY.to_ne_bytes(), &REQUEST.to_ne_bytes(), &[0; 8]].concat();
    let asked = [&[AF_UNIX, 0, 0, 0][..], &ANY_STATE.to_ne_bytes(), &inode.to_ne_bytes(), &SHOW_LENGTH.to_ne_bytes(), &ANY_COOKIE];
    [header, asked.concat()].concat()
}

/// What a reply says; `None` where it is an error, or says something else.
fn read(reply: &[u8]) -> Option<Queue> {
    let u16_at = |at: usize| Some(u16::from_ne_bytes(reply.get(at..at + 2)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_ne_bytes(reply.get(at..at + 4)?.try_into().ok()?));
    if u16_at(4)? != BY_FAMILY {
        return None;
    }
    let mut at = HEADER + TOLD;
    loop {
        let (length, kind) = (usize::from(u16_at(at)?), u16_at(at + 2)?);
        if kind == LENGTH {
            return Some(Queue { length: u32_at(at + ATTRIBUTE)?, limit: u32_at(at + ATTRIBUTE + 4)? });
        }
        // Attributes begin at multiples of four; one without a length would never end.
        at += length.max(ATTRIBUTE).next_multiple_of(4);
    }
}

// === impl Queue ===

impl Queue {
    /// Whether nobody more gets in. The kernel lets in one more than the limit says.
    pub const fn is_full(self) -> bool {
        self.length > self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;
    use rustix::net::{SocketAddrUnix, bind, connect, listen, socket};

    fn unix() -> OwnedFd {
        socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap()
    }

    #[test]
    fn a_queue_is_as_long_as_there_are_connections_that_nobody_took_and_full_at_its_limit() {
        let place = tempfile::tempdir().unwrap();
        let address = SocketAddrUnix::new(place.path().join("socket")).unwrap();
        let listener = unix();
        bind(&listener, &address).unwrap();
        listen(&listener, 2).unwrap();
        let backlog = Backlog::of(&listener).expect("this kernel has unix_diag");
        let mut held = Vec::new();
        for length in 0..=3 {
            let queue = Queue { length, limit: 2 };
            assert_eq!(backlog.look(), Some(queue));
            let client = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None).unwrap();
            let connected = connect(&client, &address);
            assert_eq!(connected, if queue.is_full() { Err(Errno::AGAIN) } else { Ok(()) }, "{queue:?}");
            assert_eq!(queue.is_full(), length == 3);
            held.push(client);
        }
    }

    #[test]
    fn a_socket_that_the_kernel_tells_nothing_of_has_no_queue() {
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Backlog::of(&tcp).is_none(), "unix_diag does not know it");
    }

    #[test]
    fn a_reply_that_is_cut_off_or_means_something_else_says_nothing() {
        let attribute =
            |kind: u16| [&12_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &3_u32.to_ne_bytes(), &9_u32.to_ne_bytes()].concat();
        let head = [&0_u32.to_ne_bytes()[..], &BY_FAMILY.to_ne_bytes(), &[0; 26]].concat();
        let whole = [&head[..], &attribute(1), &attribute(LENGTH)].concat();
        assert_eq!(read(&whole), Some(Queue { length: 3, limit: 9 }));
        for cut in 0..whole.len() {
            assert_eq!(read(&whole[..cut]), None, "cut after {cut} bytes");
        }
        assert_eq!(read(&[0; 64]), None);
        assert_eq!(read(&[&head[..], &[0; 8]].concat()), None, "attributes without a length");
    }
}
