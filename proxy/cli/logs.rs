//! Log lines on standard error, and their level while the program runs.

use std::io::IsTerminal;

use thiserror::Error;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry, fmt, reload};

use crate::config::{Log, LogFormat, log_level};

/// Turns the log up and down; a clone sets the same log.
#[derive(Clone, Debug)]
pub struct Level(reload::Handle<EnvFilter, Registry>);

/// Why a level was not taken. The old one stays.
#[derive(Debug, Error)]
pub enum LevelError {
    /// It is no level.
    #[error("{level:?} is no log level: {reason}")]
    Unknown {
        /// What was asked for.
        level: String,
        /// What would be right.
        reason: String,
    },
    /// Directives that cannot be read.
    #[error("the log's directives cannot be read")]
    Directives(#[from] tracing_subscriber::filter::ParseError),
    /// The log is gone.
    #[error("the log cannot be set")]
    Reload(#[from] reload::Error),
}

/// Why logging cannot begin.
#[derive(Debug, Error)]
pub enum StartError {
    /// The level.
    #[error(transparent)]
    Level(#[from] LevelError),
    /// There is a log already.
    #[error("logging was set up before")]
    Twice(#[from] TryInitError),
}

/// Begins logging for the whole process. Colours on a terminal only, and not where `NO_COLOR` asks for none.
pub fn start(log: &Log) -> Result<Level, StartError> {
    let (filter, handle) = reload::Layer::new(filter(&log.level)?);
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(colours);
    let lines = match log.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_target(true).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).try_init()?;
    Ok(Level(handle))
}

// === impl Level ===

impl Level {
    /// Puts a level, or directives, in force at once.
    pub fn set(&self, level: &str) -> Result<(), LevelError> {
        Ok(self.0.reload(filter(level)?)?)
    }
}

fn filter(level: &str) -> Result<EnvFilter, LevelError> {
    let level = log_level(level).map_err(|reason| LevelError::Unknown { level: level.to_owned(), reason })?;
    Ok(EnvFilter::builder().parse(level)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_can_be_changed_and_a_mistyped_one_changes_nothing() {
        let (layer, handle) = reload::Layer::new(filter("info").unwrap());
        let level = Level(handle);
        let _default = tracing_subscriber::registry().with(layer).set_default();

        assert!(!tracing::enabled!(tracing::Level::DEBUG));
        level.set("debug").unwrap();
        assert!(tracing::enabled!(tracing::Level::DEBUG));
        let refused = level.set("inof").unwrap_err().to_string();
        assert!(refused.starts_with("\"inof\" is no log level: give off, error"), "{refused}");
        assert!(tracing::enabled!(tracing::Level::DEBUG));
    }
}
