//! The kubelet's socket, over one long-lived connection.

use std::cell::RefCell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tonic::Code;

use super::{Call, Failure, Reply, Upstream};
use crate::causes::with_causes;
use crate::client::{CallError, ConnectError, Connection, Limits, method};
use crate::proto::v1::GetPodResourcesRequest;
use crate::rights::denied_hint;

/// How long a call may take. A kubelet that hangs is asked again then; whoever waits for it has a deadline of their own.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// A real kubelet. A clone shares the connection.
#[derive(Clone, Debug)]
pub struct Kubelet {
    socket: PathBuf,
    limits: Limits,
    state: Rc<RefCell<State>>,
}

#[derive(Debug, Default)]
struct State {
    connection: Option<Connection>,
    /// Device and inode of the socket that it was made to.
    dialled: Option<(u64, u64)>,
    /// What tells its server from others.
    server: Option<Arc<str>>,
    /// Connections made so far.
    made: u64,
}

// === impl Kubelet ===

impl Kubelet {
    /// The kubelet at this socket. `max_reply` is in bytes.
    #[must_use]
    pub fn new(socket: PathBuf, max_reply: usize) -> Self {
        Self { socket, limits: Limits { max_reply, ..Limits::default() }, state: Rc::default() }
    }

    /// The connection that is open, and its number.
    fn open(&self) -> Option<(Connection, u64)> {
        let state = self.state.borrow();
        state.connection.as_ref().filter(|connection| !connection.is_closed()).map(|connection| (connection.clone(), state.made))
    }

    async fn connection(&self) -> Result<(Connection, u64), Failure> {
        if let Some(connection) = self.open() {
            return Ok(connection);
        }
        // Looked up before dialling: where the socket is replaced in between, the next look finds a difference.
        let (dialled, before) = (identity(&self.socket), made(&self.socket));
        let connection = Connection::connect(&self.socket, self.limits).await.map_err(|error| unreachable_or_lost(&error))?;
        // Two callers may have dialled at the same time: the first one's connection is as good as ours.
        if let Some(other) = self.open() {
            return Ok(other);
        }
        let mut state = self.state.borrow_mut();
        state.connection = Some(connection.clone());
        state.dialled = dialled;
        // Where it was replaced meanwhile, nobody knows which of the two took the connection.
        state.server = before.filter(|before| made(&self.socket).as_ref() == Some(before));
        state.made += 1;
        Ok((connection, state.made))
    }
}

impl Upstream for Kubelet {
    async fn connect(&self) -> Result<(), Failure> {
        self.connection().await.map(drop)
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        let (connection, number) = self.connection().await?;
        let (method, request) = match call {
            Call::List => (method::LIST, Bytes::new()),
            Call::Allocatable => (method::ALLOCATABLE, Bytes::new()),
            Call::AlphaList => (method::ALPHA_LIST, Bytes::new()),
            Call::Get { namespace, name } => {
                let request = GetPodResourcesRequest { pod_name: name.to_owned(), pod_namespace: namespace.to_owned() };
                (method::GET, request.encode_to_vec().into())
            }
        };
        match connection.unary(method, request, CALL_DEADLINE).await {
            Ok(response) => Ok(Reply { message: response.into_inner(), connection: number }),
            Err(CallError::Status(status)) if status.code == Code::ResourceExhausted => Err(Failure::RateLimited),
            Err(CallError::Status(status)) if status.code == Code::DeadlineExceeded => Err(Failure::Late(CALL_DEADLINE)),
            Err(CallError::Status(status)) => Err(Failure::Answered(status)),
            Err(CallError::Deadline(after)) => Err(Failure::Late(after)),
            Err(CallError::TooLarge { max }) => {
                Err(Failure::TooLarge(format!("the reply is larger than {max} bytes; raise --max-reply if that is no mistake")))
            }
            Err(error @ (CallError::CutOff | CallError::NoStatus)) => Err(Failure::Broken(error.to_string())),
            Err(error @ CallError::Transport(_)) => Err(Failure::Lost(with_causes(&error))),
        }
    }

    fn connections(&self) -> u64 {
        self.state.borrow().made
    }

    fn server(&self) -> Option<Arc<str>> {
        self.state.borrow().server.clone()
    }

    fn drop_if_replaced(&self) -> bool {
        let mut state = self.state.borrow_mut();
        // A socket that was only unlinked still serves whoever is connected.
        let replaced = state.connection.is_some() && identity(&self.socket).is_some_and(|now| Some(now) != state.dialled);
        if replaced {
            state.connection = None;
        }
        replaced
    }

    async fn closed(&self) {
        let closed = {
            let mut state = self.state.borrow_mut();
            // One that has ended while nobody looked counts once.
            if state.connection.take_if(|connection| connection.is_closed()).is_some() {
                return;
            }
            // The future does not keep the connection open.
            state.connection.as_ref().map(Connection::closed)
        };
        match closed {
            Some(closed) => closed.await,
            None => std::future::pending().await,
        }
    }
}

fn identity(socket: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(socket).ok().map(|found| (found.dev(), found.ino()))
}

/// The socket file with when it was made or given its mode last: its inode's number alone is soon used again.
fn made(socket: &Path) -> Option<Arc<str>> {
    let found = std::fs::metadata(socket).ok()?;
    Some(format!("{}:{}:{}.{:09}", found.dev(), found.ino(), found.ctime(), found.ctime_nsec()).into())
}

/// Only what says for sure that nobody serves there counts as unreachable: then the last good answer may still be given.
/// A listener that does not answer may well have changed something.
fn unreachable_or_lost(error: &ConnectError) -> Failure {
    match error {
        ConnectError::NoSuchFile(_) | ConnectError::Refused(_) => Failure::Unreachable(error.to_string()),
        // Behind these a kubelet may well be at work, and giving devices away.
        ConnectError::PermissionDenied(path) => {
            Failure::Lost(denied_hint(path).map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}")))
        }
        ConnectError::NotASocket(_) | ConnectError::TimedOut { .. } | ConnectError::Handshake { .. } | ConnectError::Io { .. } => {
            Failure::Lost(with_causes(error))
        }
    }
}
