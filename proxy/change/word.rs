//! Counters kept by the kernel: a change is in them before the system call that made it returns.

use std::io;
use std::os::fd::AsFd;

use crate::sys::MappedWords;

/// The words of a BPF array map with `BPF_F_MMAPABLE`, or of a file, in this order: all changes, those that
/// GetAllocatableResources may show, those of the kubelet's socket. A writer counts in the later ones first. Each only grows.
#[derive(Debug)]
pub struct Words(MappedWords);

// === impl Words ===

impl Words {
    /// Index of the word that counts every change.
    pub const CHANGES: usize = 0;
    /// Index of the word that counts changes of [`super::Kind::Allocatable`] and of [`super::Kind::Socket`].
    pub const ALLOCATABLE: usize = 1;
    /// Index of the word that counts changes of [`super::Kind::Socket`].
    pub const SOCKET: usize = 2;

    /// Maps them read-only. The descriptor may be closed afterwards; the map lives as long as the mapping.
    pub fn map(fd: impl AsFd) -> io::Result<Self> {
        MappedWords::map(fd).map(Self)
    }

    /// One of them as it is now.
    #[inline]
    pub fn load(&self, at: usize) -> u64 {
        self.0.load(at)
    }
}
