//! The parts of gRPC over HTTP/2 that we own: message framing, statuses, timeouts, content types.
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>. No I/O here.

mod content_type;
mod frame;
mod status;
mod timeout;
mod unary;

pub use content_type::is_grpc;
pub use frame::{PREFIX_LEN, frame_message, prefix};
pub use status::{Status, code_name, encode_message};
pub use timeout::{TimeoutError, parse_timeout};
pub use tonic::Code;
pub use unary::{Unary, UnaryError};
