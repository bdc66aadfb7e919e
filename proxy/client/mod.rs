//! Calling a podresources socket, the kubelet's or ours, over one long-lived HTTP/2 connection.
//!
//! tonic does the framing, the statuses and the limits; the connection below it is hyper's own. Nothing here dials again by itself:
//! who wants to go on after [`Connection::closed`] connects anew.

mod call;
mod channel;
mod connect;
mod first_frame;
mod path;
mod raw;

pub use call::{CallError, method};
pub use channel::Channel;
pub use connect::{ConnectError, Connection, Limits};
pub use path::{PathError, SocketPath};

#[cfg(test)]
mod tests;
