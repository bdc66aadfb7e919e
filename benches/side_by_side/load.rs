//! The calling side. Its own cost does not count.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use podresources_proxy::client::{Connection, Limits, method};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::process::Server;

/// Bytes of an echo's request: what a List request takes on a warm connection, HEADERS and DATA.
pub(crate) const ECHO_REQUEST: usize = 48;
/// Bytes of an echo's reply beside the message: gRPC prefix, HTTP/2 frames and headers.
pub(crate) const ECHO_EXTRA: usize = 120;

/// Open connections to one variant.
pub(crate) enum Load {
    Echo(Vec<UnixStream>, usize),
    Grpc(Vec<Connection>, usize),
}

impl Load {
    pub(crate) async fn connect(server: &Server, connections: usize, list: usize) -> Result<Self, Box<dyn Error>> {
        if server.name.contains("echo") {
            let mut streams = Vec::new();
            for _ in 0..connections {
                streams.push(UnixStream::connect(&server.socket).await?);
            }
            return Ok(Self::Echo(streams, list + ECHO_EXTRA));
        }
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(Connection::connect(&server.socket, Limits::default()).await?);
        }
        Ok(Self::Grpc(open, list))
    }

    /// Makes so many calls over all connections together, and checks each reply's length.
    pub(crate) async fn run(&mut self, calls: usize) -> Result<(), Box<dyn Error>> {
        let mut callers: JoinSet<Result<Option<UnixStream>, String>> = JoinSet::new();
        match self {
            Self::Echo(streams, reply) => {
                let (each, reply) = (calls / streams.len(), *reply);
                for mut stream in streams.drain(..) {
                    callers.spawn(async move {
                        let mut buffer = vec![0; reply];
                        for _ in 0..each {
                            stream.write_all(&[0; ECHO_REQUEST]).await.map_err(|error| error.to_string())?;
                            stream.read_exact(&mut buffer).await.map_err(|error| error.to_string())?;
                        }
                        Ok(Some(stream))
                    });
                }
            }
            Self::Grpc(connections, list) => {
                let (each, list) = (calls / connections.len(), *list);
                for connection in connections.iter().cloned() {
                    callers.spawn(async move {
                        for _ in 0..each {
                            let reply = connection.unary(method::LIST, Bytes::new(), Duration::from_secs(10)).await;
                            let reply = reply.map_err(|error| error.to_string())?.into_inner();
                            if reply.len() != list {
                                return Err(format!("a reply of {} bytes, not {list}", reply.len()));
                            }
                        }
                        Ok(None)
                    });
                }
            }
        }
        while let Some(done) = callers.join_next().await {
            if let (Self::Echo(streams, _), Some(stream)) = (&mut *self, done??) {
                streams.push(stream);
            }
        }
        Ok(())
    }
}
