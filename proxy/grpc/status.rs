//! How a call ends when it does not end well.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use tonic::Code;

/// A gRPC status: a code and a text for people. Clients match the kubelet's texts, so those are kept to the letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The gRPC status code.
    pub code: Code,
    /// The text, not yet percent-encoded.
    pub message: Cow<'static, str>,
}

/// What a `grpc-message` may not hold as it is: `%`, and all outside 0x20 to 0x7E.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The text as header `grpc-message` carries it. Nothing is allocated for a text that needs no escape.
#[must_use]
pub fn encode_message(message: &str) -> Cow<'_, str> {
    percent_encode(message.as_bytes(), ESCAPED).into()
}

// === impl Status ===

impl Status {
    /// A status of this code and text.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into() }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl std::error::Error for Status {}

/// A status code's name, as gRPC's specification and every other tool write it.
/// Source: <https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>.
#[must_use]
pub const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_text_goes_out_as_it_is() {
        let text = "pod a/b in namespace \"c\" not found ~";
        assert!(matches!(encode_message(text), Cow::Borrowed(same) if same == text));
    }

    #[test]
    fn percent_signs_controls_and_other_scripts_are_escaped_byte_by_byte() {
        assert_eq!(encode_message("50% \n\x7fé"), "50%25 %0A%7F%C3%A9");
    }
}
