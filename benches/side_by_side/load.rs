//! The calling side. Its own cost does not count, but what it writes does: HEADERS and DATA of a request come in one piece, header fields
//! by their table index, and windows are large, as with grpc-go on a warm connection.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::process::Server;

/// Bytes of a request on a warm connection.
pub(crate) const REQUEST: usize = 9 + HEADERS_AGAIN.len() + 9 + 5;
/// Bytes of a reply on a warm connection beside the message, roughly: gRPC prefix, header block, trailers, frame heads.
pub(crate) const REPLY_EXTRA: usize = 80;

/// Calls in flight on one connection at most.
const MOST_IN_FLIGHT: usize = 64;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const DATA: u8 = 0;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// `SETTINGS_INITIAL_WINDOW_SIZE`: 16 MiB.
const WINDOW: [u8; 6] = [0, 4, 1, 0, 0, 0];
/// What the connection's window is widened by, at first and whenever half of it is used up.
const WIDEN: u32 = 1 << 30;

/// `:path`, `:authority`, `content-type`, `te` and `user-agent` enter the table in this order, and are its entries 66 to 62 from then on.
const HEADERS_AGAIN: [u8; 7] = [0x83, 0x86, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe];

/// Open connections to one variant.
pub(crate) struct Load {
    callers: Vec<Caller>,
    in_flight: usize,
}

/// One connection.
enum Caller {
    Echo { stream: UnixStream, reply: usize, over: usize },
    Grpc(Grpc),
}

struct Grpc {
    stream: UnixStream,
    /// Length of the message that each reply must have, prefix included.
    framed: usize,
    next_stream: u32,
    /// Bytes of DATA since the connection's window was widened.
    received: u32,
    /// Bytes of DATA, and replies ended, since no call was in flight.
    data: usize,
    ended: usize,
    filled: usize,
    buffer: Vec<u8>,
}

impl Load {
    pub(crate) async fn connect(server: &Server, connections: usize, in_flight: usize, list: usize) -> io::Result<Self> {
        let mut callers = Vec::new();
        for _ in 0..connections {
            let stream = UnixStream::connect(&server.socket).await?;
            callers.push(if server.name.contains("echo") {
                Caller::Echo { stream, reply: list + REPLY_EXTRA, over: 0 }
            } else {
                Caller::Grpc(Grpc::begin(stream, list + 5).await?)
            });
        }
        Ok(Self { callers, in_flight })
    }

    /// Makes so many calls over all connections together, and checks each reply's length.
    pub(crate) async fn run(&mut self, calls: usize) -> io::Result<()> {
        let (each, in_flight) = (calls / self.callers.len(), self.in_flight);
        let mut running: JoinSet<io::Result<Caller>> = JoinSet::new();
        for mut caller in self.callers.drain(..) {
            running.spawn(async move {
                let mut buffer = vec![0; 256 * 1024];
                caller.send(in_flight).await?;
                let (mut sent, mut done) = (in_flight, 0);
                while done < each {
                    let ended = caller.receive(&mut buffer).await?;
                    done += ended;
                    let next = ended.min(each - sent);
                    if next > 0 {
                        caller.send(next).await?;
                        sent += next;
                    }
                }
                Ok(caller)
            });
        }
        while let Some(caller) = running.join_next().await {
            self.callers.push(caller??);
        }
        Ok(())
    }
}

impl Caller {
    /// Begins so many calls, with one write.
    async fn send(&mut self, calls: usize) -> io::Result<()> {
        match self {
            Self::Echo { stream, .. } => stream.write_all(&vec![0; calls * REQUEST]).await,
            Self::Grpc(grpc) => grpc.send(calls, &HEADERS_AGAIN).await,
        }
    }

    /// Reads once; how many calls have ended with it.
    async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Echo { stream, reply, over } => {
                *over += read(stream, buffer).await?;
                let ended = *over / *reply;
                *over %= *reply;
                Ok(ended)
            }
            Self::Grpc(grpc) => grpc.receive().await,
        }
    }
}

async fn read(stream: &mut UnixStream, buffer: &mut [u8]) -> io::Result<usize> {
    match stream.read(buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        read => Ok(read),
    }
}

impl Grpc {
    /// Preface, settings, and a first call, after which all header fields are in the table.
    async fn begin(mut stream: UnixStream, framed: usize) -> io::Result<Self> {
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        push(&mut hello, SETTINGS, 0, 0, &WINDOW);
        push(&mut hello, SETTINGS, ACK, 0, &[]);
        push(&mut hello, WINDOW_UPDATE, 0, 0, &WIDEN.to_be_bytes());
        stream.write_all(&hello).await?;
        let mut grpc =
            Self { stream, framed, next_stream: 1, received: 0, data: 0, ended: 0, filled: 0, buffer: vec![0; 1024 * 1024] };
        let mut first = vec![0x83, 0x86];
        for (name, value) in [(0x44, "/v1.PodResourcesLister/List"), (0x41, "localhost"), (0x5f, "application/grpc")] {
            first.push(name);
            text(&mut first, value);
        }
        first.push(0x40);
        text(&mut first, "te");
        text(&mut first, "trailers");
        first.push(0x7a);
        text(&mut first, "bench");
        grpc.send(1, &first).await?;
        while grpc.receive().await? == 0 {}
        Ok(grpc)
    }

    async fn send(&mut self, calls: usize, headers: &[u8]) -> io::Result<()> {
        let mut requests = Vec::with_capacity(256 * calls);
        if self.received > WIDEN / 2 {
            push(&mut requests, WINDOW_UPDATE, 0, 0, &self.received.to_be_bytes());
            self.received = 0;
        }
        for _ in 0..calls {
            push(&mut requests, HEADERS, END_HEADERS, self.next_stream, headers);
            push(&mut requests, DATA, END_STREAM, self.next_stream, &[0; 5]);
            self.next_stream += 2;
        }
        self.stream.write_all(&requests).await
    }

    /// Reads once, and takes the whole frames out of what is there.
    async fn receive(&mut self) -> io::Result<usize> {
        self.filled += read(&mut self.stream, &mut self.buffer[self.filled..]).await?;
        let (mut at, mut ended) = (0, 0);
        while let Some(head) = self.buffer[at..self.filled].first_chunk::<9>() {
            let length = usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap_or(usize::MAX);
            if self.filled - at < 9 + length {
                break;
            }
            let (kind, flags) = (head[3], head[4]);
            at += 9 + length;
            if kind == DATA {
                self.data += length;
            }
            if kind <= HEADERS && flags & END_STREAM != 0 {
                ended += 1;
            }
        }
        self.buffer.copy_within(at..self.filled, 0);
        self.filled -= at;
        // Replies of several calls may be interleaved: they are checked when none is under way.
        if ended > 0 {
            self.ended += ended;
            let whole = self.data / self.framed;
            if whole < self.ended || self.data > (self.ended + MOST_IN_FLIGHT) * self.framed {
                return Err(io::Error::other(format!(
                    "{} bytes in {} replies, not {} in each",
                    self.data, self.ended, self.framed
                )));
            }
            if self.data == self.ended * self.framed {
                self.received += u32::try_from(self.data).unwrap_or(u32::MAX);
                (self.data, self.ended) = (0, 0);
            }
        }
        Ok(ended)
    }
}

/// Appends a frame (RFC 9113, section 4.1).
fn push(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends a string literal without Huffman code (RFC 7541, section 5.2); shorter than 127 bytes.
fn text(out: &mut Vec<u8>, value: &str) {
    out.push(u8::try_from(value.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(value.as_bytes());
}
