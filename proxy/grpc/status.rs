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
