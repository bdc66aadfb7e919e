//! Mending, judged by `h2`: what it takes unmended it takes mended, with nothing but `:authority` changed; and a path or a dial target as
//! `:authority` is taken however it is written.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::mend::{client, integer, mended, text};
use super::source::Source;

pub(crate) fn check(input: &[u8]) {
    let mut source = Source(input);
    if source.below(4) == 0 {
        return taken(source.byte(), source.0);
    }
    let bytes = client(&mut source);
    let (before, after) = (served(&bytes), served(&mended(&bytes)));
    for request in &before {
        assert!(after.contains(request), "{request} is not among {after:?}");
    }
}

/// A request with any `:authority` in plain text, or with a path or target in Huffman code, is one that `h2` takes.
fn taken(form: u8, value: &[u8]) {
    let value = &value[..value.len().min(200)];
    let coded = form & 1 == 0;
    let easy = |byte: &u8| byte.is_ascii_alphanumeric() || b":/%@.?|\" ~_+-".contains(byte);
    // An empty one with its name spelled out stays refused, as `proxy/serve/mend/order.rs` says.
    if (coded && !value.iter().all(easy)) || (value.is_empty() && form & 8 != 0) {
        return;
    }
    let mut block = vec![0x83, 0x86, 0x04, 2, b'/', b'x'];
    let (flags, prefix) = [(0x40, 6), (0, 4), (0x10, 4)][usize::from(form >> 1) % 3];
    integer(flags, prefix, u32::from(form & 8 == 0), &mut block);
    if form & 8 != 0 {
        text(b":authority", form & 16 == 0, &mut block);
    }
    text(value, coded, &mut block);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    bytes.extend(&u32::try_from(block.len()).unwrap().to_be_bytes()[1..]);
    bytes.extend([1, 5, 0, 0, 0, 1]);
    bytes.extend(block);
    assert_eq!(served(&mended(&bytes)).len(), 1, "{value:x?} is refused");
}

/// The requests that `h2` takes, without their `:authority`.
fn served(bytes: &[u8]) -> Vec<String> {
    let mut context = Context::from_waker(Waker::noop());
    let mut handshake = pin!(h2::server::handshake(Client(bytes)));
    let Poll::Ready(Ok(mut connection)) = handshake.as_mut().poll(&mut context) else { return Vec::new() };
    let mut seen = Vec::new();
    // Each is held to the end: letting go would reset its stream.
    let mut held = Vec::new();
    while let Poll::Ready(Some(Ok((request, reply)))) = connection.poll_accept(&mut context) {
        let (head, body) = request.into_parts();
        seen.push(format!("{:?} {} {} {:?}", reply.stream_id(), head.method, head.uri.path(), head.headers));
        held.push((body, reply));
    }
    seen
}

/// A client that has written these bytes, and waits; what it is told goes nowhere.
struct Client<'a>(&'a [u8]);

impl AsyncRead for Client<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Pending;
        }
        let (now, rest) = self.0.split_at(self.0.len().min(buf.remaining()));
        buf.put_slice(now);
        self.0 = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
