//! How a socket is named: a path, or `unix:///path` as gRPC writes it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// The longest path that fits into `sockaddr_un` with its closing zero, in bytes (unix(7)).
const PATH_MAX: usize = 107;

/// The absolute path of a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SocketPath(PathBuf);

/// Why a text does not name a Unix socket.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PathError {
    /// Nothing was given.
    #[error("the socket's path is empty; give an absolute path or unix:///path")]
    Empty,
    /// A relative path, or `unix://host/path`.
    #[error("{0:?} is not an absolute path; give /path or unix:///path")]
    Relative(String),
    /// Some other kind of address.
    #[error("{0:?} is not a Unix socket; give an absolute path or unix:///path")]
    Scheme(String),
    /// Longer than the kernel takes.
    #[error("{path:?} has {len} bytes, a socket's path can have {PATH_MAX}; choose a shorter directory")]
    TooLong {
        /// The path.
        path: String,
        /// Its length in bytes.
        len: usize,
    },
}

// === impl SocketPath ===

impl SocketPath {
    /// The path itself.
    pub fn as_path(&self) -> &Path {
        &self.0
    }
}

impl FromStr for SocketPath {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Self, PathError> {
        let path = match text.split_once(':') {
            Some(("unix", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some((scheme, _)) if !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') => {
                return Err(PathError::Scheme(text.to_owned()));
            }
            _ => text,
        };
        if path.is_empty() {
            return Err(PathError::Empty);
        }
        if !path.starts_with('/') {
            return Err(PathError::Relative(text.to_owned()));
        }
        if path.len() > PATH_MAX {
            return Err(PathError::TooLong { path: path.to_owned(), len: path.len() });
        }
        Ok(Self(PathBuf::from(path)))
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl AsRef<Path> for SocketPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_its_unix_urls_name_the_same_socket() {
        for text in ["/run/a.sock", "unix:///run/a.sock", "unix:/run/a.sock"] {
            assert_eq!(text.parse::<SocketPath>().unwrap().as_path(), Path::new("/run/a.sock"), "{text}");
        }
        assert_eq!("/run/with:colon".parse::<SocketPath>().unwrap().as_path(), Path::new("/run/with:colon"));
    }

    #[test]
    fn what_is_no_absolute_unix_path_is_refused_by_kind() {
        let kind = |text: &str| text.parse::<SocketPath>().unwrap_err();
        assert_eq!(kind(""), PathError::Empty);
        assert_eq!(kind("unix://"), PathError::Empty);
        assert_eq!(kind("run/a.sock"), PathError::Relative("run/a.sock".into()));
        assert_eq!(kind("unix://host/a.sock"), PathError::Relative("unix://host/a.sock".into()));
        assert_eq!(kind("tcp://127.0.0.1:1"), PathError::Scheme("tcp://127.0.0.1:1".into()));
        assert_eq!(kind("unix-abstract:a"), PathError::Scheme("unix-abstract:a".into()));
        assert!(matches!(kind(&format!("/{}", "x".repeat(107))), PathError::TooLong { len: 108, .. }));
        assert!(format!("/{}", "x".repeat(106)).parse::<SocketPath>().is_ok());
    }
}
