//! Counters that the kernel writes to, seen through a shared mapping.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The first page of a file or a BPF array map (`BPF_F_MMAPABLE`), mapped read-only, as an array of `u64`.
#[derive(Debug)]
pub(crate) struct MappedWords {
    page: NonNull<u64>,
    length: usize,
}

// SAFETY: the mapping belongs to no thread, lives until the drop, and is only read, by atomic loads.
unsafe impl Send for MappedWords {}
// SAFETY: as above.
unsafe impl Sync for MappedWords {}

// === impl MappedWords ===

impl MappedWords {
    /// Maps the first page. It must be all there: a file shorter than it would fault.
    pub(crate) fn map(fd: impl AsFd) -> io::Result<Self> {
        let length = rustix::param::page_size();
        // SAFETY: the kernel chooses the address, so that no other mapping is touched.
        let page = unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, fd, 0)? };
        let page = NonNull::new(page.cast()).ok_or_else(|| io::Error::other("mmap returned the null address"))?;
        Ok(Self { page, length })
    }

    /// How many words there are.
    pub(crate) const fn len(&self) -> usize {
        self.length / size_of::<u64>()
    }

    /// The word at `at` as it is now; zero beyond the end. What its writer did before is seen by whatever the caller reads next.
    pub(crate) fn load(&self, at: usize) -> u64 {
        if at >= self.len() {
            return 0;
        }
        // SAFETY: `at` is inside the mapping, which is aligned to a page, lives as long as `self`, and is written by the kernel in
        // whole words. Relaxed loads of this size are fine on read-only memory (`std::sync::atomic`, 64-bit targets).
        let word = unsafe { AtomicU64::from_ptr(self.page.as_ptr().add(at)) };
        let value = word.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`, and nobody else has its address.
        let unmapped = unsafe { munmap(self.page.as_ptr().cast(), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours could not be undone");
    }
}
