//! What can be wrong with a configuration, and where a value came from.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A flag.
    Flag(&'static str),
    /// An environment variable.
    Env(String),
    /// A line of the file.
    File {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
    },
    /// Nobody set it.
    Default,
    /// Nobody set it, and `--demo` has defaults of its own.
    Demo,
    /// Nobody set it: it follows from another value.
    Derived,
}

/// One thing that is wrong.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file is no TOML.
    #[error("{}:{line}: {message}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The parser's words.
        message: String,
    },
    /// A key that means nothing.
    #[error("{}:{line}: unknown key `{key}`{}", .path.display(), did_you_mean(.nearest.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The whole key, dotted.
        key: String,
        /// The nearest key that means something.
        nearest: Option<String>,
    },
    /// A list, a table or a date where a value belongs.
    #[error("{}:{line}: `{key}` is {found}; it takes {wanted}", .path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The whole key, dotted.
        key: String,
        /// What stands there.
        found: &'static str,
        /// What should.
        wanted: &'static str,
    },
    /// A value that does not fit.
    #[error("{origin}: {value:?} does not fit `{key}`: {reason}")]
    Value {
        /// Where the value came from.
        origin: Origin,
        /// The setting's key.
        key: &'static str,
        /// The value.
        value: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// Two values that do not go together.
    #[error("{0}")]
    Conflict(String),
}

/// All that is wrong, at once.
#[derive(Debug, Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "--{flag}"),
            Self::Env(name) => f.write_str(name),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Default => f.write_str("default"),
            Self::Demo => f.write_str("default of --demo"),
            Self::Derived => f.write_str("follows from other settings"),
        }
    }
}

// === impl ConfigError ===

impl ConfigError {
    /// The line of the file that it is about; 0 where it is about none.
    pub fn line(&self) -> usize {
        match self {
            Self::Syntax { line, .. }
            | Self::UnknownKey { line, .. }
            | Self::Shape { line, .. }
            | Self::Value { origin: Origin::File { line, .. }, .. } => *line,
            Self::Read { .. } | Self::Value { .. } | Self::Conflict(_) => 0,
        }
    }
}

// === impl ConfigErrors ===

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, error) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

/// The candidate that looks most like `given`, where one looks like it at all.
pub(super) fn nearest<'a>(given: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    /// Below this, two words have little in common (Jaro-Winkler, 0 to 1).
    const ALIKE: f64 = 0.8;
    candidates
        .map(|candidate| (strsim::jaro_winkler(given, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}

fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(|| "; `podresources-proxy config show` lists all keys".to_owned(), |key| format!("; did you mean `{key}`?"))
}
