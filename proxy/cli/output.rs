//! How a reply is printed, and the printing itself.

use std::io::{self, Write};

use clap::ValueEnum;
use prost::Message;

use super::fault::Fault;
use super::message;

/// `-o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// Columns for people
    #[default]
    Table,
    /// The same with device ids, NUMA nodes and what claims got
    Wide,
    /// The reply, protobuf JSON names (lowerCamelCase), 64-bit numbers as numbers, sorted
    Json,
    /// The same as YAML
    Yaml,
    /// Names alone, one a line
    Name,
}

// === impl Output ===

impl Output {
    /// For people, so that a remark on standard error is welcome.
    pub(super) fn is_table(self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }

    /// The reply where it is to be printed as the message that it is.
    pub(super) fn message(self, name: &'static str, reply: &impl Message) -> Option<Result<String, Fault>> {
        match self {
            Self::Json => Some(message::json(name, reply).map_err(Fault::from)),
            Self::Yaml => Some(message::yaml(name, reply).map_err(Fault::from)),
            Self::Table | Self::Wide | Self::Name => None,
        }
    }
}

/// Writes to standard output at once.
pub(super) fn print(text: &str) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Fault::Output)
}

/// A remark for people, on standard error; that nobody reads it is no error.
pub(super) fn remark(text: &str) {
    let _unread = writeln!(io::stderr(), "{text}");
}
/// This program as it was called, to be typed again.
#[cfg(feature = "server")]
pub(super) fn program() -> String {
    std::env::args().next().unwrap_or_else(|| env!("CARGO_PKG_NAME").to_owned())
}
