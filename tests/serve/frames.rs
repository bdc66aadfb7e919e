//! HTTP/2 by hand: frames as they stand on the wire (RFC 9113, section 4).

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// What a client says before its first call.
pub(crate) fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Headers of a call, each a literal without index (RFC 7541, 6.2.2).
pub(crate) fn head(stream: u32, path: &str, authority: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in
        [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", authority), ("content-type", "application/grpc")]
    {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// A whole call with an empty message.
pub(crate) fn call(stream: u32, path: &str, authority: &str) -> Vec<u8> {
    [head(stream, path, authority), frame(DATA, END_STREAM, stream, &[0; 5])].concat()
}

/// The frames that stand there whole.
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((&[a, b, c, kind, flags, e, f, g, h], tail)) = bytes.split_first_chunk::<9>() {
        let len = u32::from_be_bytes([0, a, b, c]) as usize;
        let Some((payload, tail)) = tail.split_at_checked(len) else { break };
        frames.push(Frame { kind, flags, stream: u32::from_be_bytes([e, f, g, h]), payload: payload.to_vec() });
        bytes = tail;
    }
    frames
}

/// Sends these bytes over a connection of their own, reads on until the first call's trailers have come, and gives its data.
pub(crate) async fn replay(socket: &Path, bytes: &[u8], what: &str) -> Vec<u8> {
    let mut socket = UnixStream::connect(socket).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut bytes = Vec::new();
    let ended = |frame: &Frame| frame.stream == 1 && frame.kind == HEADERS && frame.flags & END_STREAM != 0;
    while !frames(&bytes).iter().any(ended) {
        let read = tokio::time::timeout(Duration::from_secs(10), socket.read_buf(&mut bytes)).await;
        assert!(matches!(read, Ok(Ok(1..))), "{what} gets no reply: {read:?}");
    }
    frames(&bytes).into_iter().filter(|frame| frame.stream == 1 && frame.kind == DATA).flat_map(|frame| frame.payload).collect()
}
