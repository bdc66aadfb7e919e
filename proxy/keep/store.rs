//! The state directory and the one file in it. Blocks; never called where others wait.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, renameat, unlinkat};
use rustix::io::Errno;
use tokio::time::Instant;

use super::error::NotOurs;
use super::record::{self, Body, Unreadable};
use super::{DirError, Kept, NotUsed, Offer, Saved, Stamp, Stamps, WriteError, clock};
use crate::grpc::PREFIX_LEN;
use crate::snapshot::{Allocatable, PodList};

const FILE: &str = "snapshot";
/// What is written before it takes the other's place. One writer at a time, so one name.
const FRESH: &str = "snapshot.new";

/// The directory, opened once, and what of ours is in it.
#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    dir: File,
    /// Of what is written, and wanted of what is read.
    boot: String,
    upstream: String,
    max_len: u64,
    /// Whether the directory's lock is ours: two instances, one of which replaces the other, must not write by turns.
    locked: bool,
    /// A file that is not ours stands in the way.
    in_the_way: bool,
    written: Option<Written>,
}

/// The file that this instance has written last.
#[derive(Debug)]
struct Written {
    file: File,
    body_sum: u128,
}

// === impl Store ===

impl Store {
    /// Makes the directory if need be, and opens it if nobody but us can put anything there. Files over `max_len` bytes are not read.
    pub(super) fn open(path: &Path, upstream: &Path, max_len: u64) -> Result<Self, DirError> {
        let dir = private(path)?;
        let unavailable = |source| DirError::Unavailable { call: "tell the boot for", path: path.to_owned(), source };
        let boot = boot().map_err(unavailable)?;
        let upstream = upstream.to_string_lossy().into_owned();
        Ok(Self { path: path.to_owned(), dir, boot, upstream, max_len, locked: false, in_the_way: false, written: None })
    }

    /// As if this were another boot.
    #[cfg(test)]
    pub(super) fn set_boot(&mut self, boot: &str) {
        boot.clone_into(&mut self.boot);
    }

    /// The file's path, for people.
    pub(super) fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// What an earlier instance has left; `None`: nothing. `now` by both clocks.
    pub(super) fn load(&mut self, now: Stamp, instant: Instant, max_stale: Duration) -> Result<Option<Saved>, NotUsed> {
        let loaded = self.read().and_then(|file| match file {
            Some(file) => self.judge(&file, now, instant, max_stale).map(Some),
            None => Ok(None),
        });
        self.in_the_way = matches!(loaded, Err(NotUsed::NotOurs(_)));
        loaded
    }

    fn read(&self) -> Result<Option<Bytes>, NotUsed> {
        // Whatever stands there, opening it must not wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut file = match openat(&self.dir, FILE, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NXIO) => return Err(NotUsed::NotOurs(NotOurs::Kind)),
            Err(error) => return Err(NotUsed::Io { call: "opened", source: error.into() }),
        };
        let failed = |source| NotUsed::Io { call: "read", source };
        let found = file.metadata().map_err(failed)?;
        self.is_ours(&found).map_err(NotUsed::NotOurs)?;
        let mut bytes = Vec::new();
        // No more than it was a moment ago, should somebody make it grow.
        (&mut file).take(found.len()).read_to_end(&mut bytes).map_err(failed)?;
        Ok(Some(bytes.into()))
    }

    fn is_ours(&self, found: &std::fs::Metadata) -> Result<(), NotOurs> {
        let ours = rustix::process::geteuid().as_raw();
        if !found.is_file() {
            Err(NotOurs::Kind)
        } else if found.uid() != ours {
            Err(NotOurs::Owner { owner: found.uid(), ours })
        } else if found.mode() & 0o077 != 0 {
            Err(NotOurs::Mode { mode: found.mode() & 0o7777 })
        } else if found.len() > self.max_len {
            Err(NotOurs::TooLarge { len: found.len(), limit: self.max_len })
        } else {
            Ok(())
        }
    }

    fn judge(&self, file: &Bytes, now: Stamp, instant: Instant, max_stale: Duration) -> Result<Saved, NotUsed> {
        let (body, stamps) = record::decode(file).map_err(|unreadable| match unreadable {
            Unreadable::Foreign => NotUsed::NotOurs(NotOurs::Content),
            unreadable => NotUsed::Unreadable(unreadable),
        })?;
        if body.boot_id != self.boot {
            return Err(NotUsed::Boot);
        }
        if body.upstream != self.upstream {
            return Err(NotUsed::Upstream { found: body.upstream, wanted: self.upstream.clone() });
        }
        let age = |stamp: Stamp| stamp.age(now).ok_or_else(|| NotUsed::Future { ahead: now.age(stamp).unwrap_or_default() });
        let begun = |stamp: Stamp| {
            let age = age(stamp)?;
            instant.checked_sub(age).ok_or(NotUsed::TooOld { age, limit: max_stale })
        };
        // List is what the others stand beside.
        let age = age(stamps.list)?;
        if age > max_stale {
            return Err(NotUsed::TooOld { age, limit: max_stale });
        }
        let list = Kept { content: Arc::new(PodList::build(&body.list)?), begun: begun(stamps.list)? };
        let allocatable = match body.allocatable {
            Some(message) => Some(Kept { content: Arc::new(Allocatable::build(&message)?), begun: begun(stamps.allocatable)? }),
            None => None,
        };
        let alpha = match body.alpha {
            Some(message) => Some(Kept { content: Arc::new(PodList::build(&message)?), begun: begun(stamps.alpha)? }),
            None => None,
        };
        Ok(Saved { list, allocatable, alpha, stamps, server: body.server.map(Arc::from) })
    }

    /// Writes a snapshot in the place of the one that is there.
    pub(super) fn write(&mut self, offer: &Offer) -> Result<(), WriteError> {
        self.make_sure_of_it()?;
        let body = Body {
            boot_id: self.boot.clone(),
            upstream: self.upstream.clone(),
            list: offer.list.framed().slice(PREFIX_LEN..),
            allocatable: offer.allocatable.as_ref().map(|allocatable| allocatable.framed().slice(PREFIX_LEN..)),
            alpha: offer.alpha.as_ref().map(|alpha| alpha.framed().slice(PREFIX_LEN..)),
            server: offer.server.as_deref().map(str::to_owned),
        };
        let (bytes, body_sum) = record::encode(&body, offer.stamps);
        match self.put(&bytes) {
            Ok(file) => {
                self.written = Some(Written { file, body_sum });
                Ok(())
            }
            Err(error) => {
                // What has been written of it may be what fills the disk.
                let _gone = unlinkat(&self.dir, FRESH, AtFlags::empty());
                Err(error)
            }
        }
    }

    fn put(&self, bytes: &[u8]) -> Result<File, WriteError> {
        let failed = |call, name: &str| {
            let path = self.path.join(name);
            move |error: io::Error| WriteError::Io { call, path, source: error }
        };
        match unlinkat(&self.dir, FRESH, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed("remove the leftover", FRESH)(error.into())),
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&self.dir, FRESH, flags, Mode::from_raw_mode(0o600)).map_err(|error| failed("make", FRESH)(error.into()))?;
        let mut file = File::from(file);
        file.write_all(bytes).map_err(failed("write", FRESH))?;
        // Where room or disk is missing, this is when it shows.
        file.sync_data().map_err(failed("write", FRESH))?;
        renameat(&self.dir, FRESH, &self.dir, FILE).map_err(|error| failed("put in place", FILE)(error.into()))?;
        self.dir.sync_all().map_err(failed("write the directory of", FILE))?;
        Ok(file)
    }

    /// Writes that a capture at these moments has brought what was written last. Says no where that is not there any more.
    pub(super) fn confirm(&mut self, stamps: Stamps) -> Result<bool, WriteError> {
        self.make_sure_of_it()?;
        let Some(Written { file, body_sum }) = &self.written else { return Ok(false) };
        let failed = |source| WriteError::Io { call: "write", path: self.path.join(FILE), source };
        if file.metadata().map_err(failed)?.nlink() == 0 {
            return Ok(false);
        }
        // One write within one page: whoever reads after we have died finds the whole of it or nothing of it. It is not synced: after
        // a crash of the machine nothing of this is used anyway.
        file.write_all_at(&record::header(*body_sum, stamps), 0).map_err(failed)?;
        Ok(true)
    }

    fn make_sure_of_it(&mut self) -> Result<(), WriteError> {
        if self.in_the_way {
            return Err(WriteError::NotOurs { path: self.file() });
        }
        if !self.locked {
            match flock(&self.dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => self.locked = true,
                Err(Errno::WOULDBLOCK) => return Err(WriteError::Busy { path: self.path.clone() }),
                Err(error) => return Err(WriteError::Io { call: "lock", path: self.path.clone(), source: error.into() }),
            }
        }
        Ok(())
    }
}

/// Makes and opens a directory that is ours alone.
fn private(path: &Path) -> Result<File, DirError> {
    let failed = |call| move |source| DirError::Unavailable { call, path: path.to_owned(), source };
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory) => {
            return Err(failed("make")(error));
        }
        // What stands there shows when it is opened.
        Ok(()) | Err(_) => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => File::from(dir),
        Err(Errno::NOTDIR | Errno::LOOP) => return Err(DirError::NotADirectory { path: path.to_owned() }),
        Err(error) => return Err(failed("open")(error.into())),
    };
    let found = dir.metadata().map_err(failed("look at"))?;
    let ours = rustix::process::geteuid().as_raw();
    if found.uid() != ours {
        return Err(DirError::Owner { path: path.to_owned(), owner: found.uid(), ours });
    }
    if found.mode() & 0o077 != 0 {
        return Err(DirError::Mode { path: path.to_owned(), mode: found.mode() & 0o7777 });
    }
    Ok(dir)
}

/// This boot, as the clock sees it: in a time namespace the clock may count from another moment.
fn boot() -> io::Result<String> {
    let boot = clock::boot_id()?;
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Ok(format!("{boot} {}", namespace.display()))
}
