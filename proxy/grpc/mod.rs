//! The parts of gRPC over HTTP/2 that we own: message framing and statuses.
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>. No I/O here.

mod frame;
mod status;

pub use frame::{PREFIX_LEN, frame_message, prefix};
pub use status::Status;
pub use tonic::Code;
