//! Memory shared with programs in the kernel, which only read it.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The beginning of a BPF array map (`BPF_F_MMAPABLE`), mapped to be written, as an array of `u64`.
#[derive(Debug)]
pub(crate) struct SharedWords {
    first: NonNull<u64>,
    /// In bytes.
    length: usize,
}

// SAFETY: the mapping belongs to no thread, lives until the drop, and is only touched by atomic operations.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

// === impl SharedWords ===

impl SharedWords {
    /// Maps `length` bytes, rounded up to whole pages. They must be there: beyond the end of a file a write would fault.
    pub(crate) fn map(fd: impl AsFd, length: usize) -> io::Result<Self> {
        let length = length.next_multiple_of(rustix::param::page_size());
        // SAFETY: the kernel chooses the address, so that no other mapping is touched.
        let first = unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0)? };
        let first = NonNull::new(first.cast()).ok_or_else(|| io::Error::other("mmap returned the null address"))?;
        Ok(Self { first, length })
    }

    /// Stores a word, after all that was stored before. Beyond the end nothing is stored.
    pub(crate) fn store(&self, at: usize, value: u64) {
        if at >= self.length / size_of::<u64>() {
            return;
        }
        // SAFETY: `at` is inside the mapping, which is aligned to a page and lives as long as `self`; who else touches it does so by
        // whole words.
        let word = unsafe { AtomicU64::from_ptr(self.first.as_ptr().add(at)) };
        word.store(value, Ordering::Release);
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`, and nobody else has its address.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours could not be undone");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn what_is_stored_is_seen_on_the_other_side_and_nothing_beyond_the_end() {
        let file: std::fs::File = rustix::fs::memfd_create("shared", rustix::fs::MemfdFlags::CLOEXEC).unwrap().into();
        let page = rustix::param::page_size();
        file.set_len(page as u64).unwrap();
        let words = SharedWords::map(&file, 100).unwrap();
        words.store(1, 7);
        words.store(page / 8 - 1, 9);
        words.store(page / 8, 11);
        let mut bytes = vec![0; page];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes[8..16], 7u64.to_ne_bytes());
        assert_eq!(bytes[page - 8..], 9u64.to_ne_bytes());
    }
}
