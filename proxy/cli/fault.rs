//! Why a verb failed, and the exit code that says so (sysexits.h).

use std::io::{self, Write as _};
use std::process::ExitCode;

use thiserror::Error;

use crate::admin::RequestError;
use crate::causes::with_causes;
use crate::client::{CallError, ConnectError};
use crate::config::ConfigErrors;
use crate::grpc::code_name;

/// `EX_USAGE`: bad usage or configuration.
pub(super) const USAGE: u8 = 64;
/// `EX_UNAVAILABLE`: the socket cannot be reached.
const UNAVAILABLE: u8 = 69;

/// Why a verb failed.
#[derive(Debug, Error)]
pub(super) enum Fault {
    /// The flags do not go together, or make no sense.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// Nobody could be reached.
    #[error("{}", .0.iter().map(with_causes).collect::<Vec<_>>().join("\n"))]
    Connect(Vec<ConnectError>),
    /// Somebody was reached, and the call failed.
    #[error("{method}: {}", call(source))]
    Call {
        /// The method's path.
        method: &'static str,
        /// How.
        source: CallError,
    },
    /// The admin socket brought no reply.
    #[error("{0}")]
    Admin(#[source] RequestError),
    /// The admin socket's reply is no status.
    #[error("{0}")]
    Status(String),
    /// Whatever a verb of the server side ends with.
    #[cfg(feature = "server")]
    #[error("{}", with_causes(&**.0))]
    Failed(Box<dyn std::error::Error + Send + Sync>),
    /// Somebody answered, and it is not what the kubelet says now.
    #[cfg(feature = "server")]
    #[error("{0}")]
    NoKubelet(String),
    /// What was found is printed already.
    #[cfg(feature = "server")]
    #[error("the kubelet and the host disagree")]
    Drift,
    /// A reply that cannot be printed.
    #[error("{}", with_causes(.0))]
    Message(#[from] super::message::MessageError),
    /// Output could not be written.
    #[error("cannot write the output: {0}")]
    Output(#[source] io::Error),
    /// The runtime could not be started.
    #[error("cannot start: {0}")]
    Start(#[source] io::Error),
}

// === impl Fault ===

impl Fault {
    /// Tells the user, and gives the exit code. A reader that went away (`| head`) is no error.
    pub(super) fn report(&self) -> ExitCode {
        if let Self::Output(error) = self
            && error.kind() == io::ErrorKind::BrokenPipe
        {
            return ExitCode::SUCCESS;
        }
        #[cfg(feature = "server")]
        if matches!(self, Self::Drift) {
            return ExitCode::FAILURE;
        }
        // Where standard error is closed, the exit code still speaks.
        let _unread = writeln!(io::stderr(), "error: {self}");
        match self {
            Self::Usage(_) | Self::Config(_) => ExitCode::from(USAGE),
            Self::Connect(_) | Self::Admin(RequestError::Connect { .. } | RequestError::Timeout { .. }) => {
                ExitCode::from(UNAVAILABLE)
            }
            Self::Call { .. } | Self::Admin(_) | Self::Status(_) | Self::Message(_) | Self::Output(_) | Self::Start(_) => {
                ExitCode::FAILURE
            }
            #[cfg(feature = "server")]
            Self::NoKubelet(_) => ExitCode::from(UNAVAILABLE),
            #[cfg(feature = "server")]
            Self::Failed(_) | Self::Drift => ExitCode::FAILURE,
        }
    }
}

fn call(error: &CallError) -> String {
    match error {
        CallError::Status(status) => format!("{} ({}): {}", code_name(status.code), status.code as i32, status.message),
        other => with_causes(other),
    }
}
