//! How a call ends when it does not end well.

use std::borrow::Cow;

use tonic::Code;

/// A gRPC status: a code and a text for people. Clients match the kubelet's texts, so those are kept to the letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The gRPC status code.
    pub code: Code,
    /// The text, not yet percent-encoded.
    pub message: Cow<'static, str>,
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
