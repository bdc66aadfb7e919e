//! Doors to parsers that are private otherwise, for `fuzz/` and `tests/corpus/` alone. Never part of a build that serves.

use std::time::Duration;

use bytes::Bytes;

use crate::answer::Ask;
use crate::grpc::Status;
use crate::serve::Method;

pub use crate::keep::{seal_record, unseal_record};
pub use crate::serve::mend::huffman_code;
pub use crate::source::host::{amount, cdi_names, kubelet_settings};

/// What a request's message asks of a method.
pub fn ask(method: Method, message: Bytes) -> Result<Ask, Status> {
    crate::serve::asked(method, message)
}

/// What metadata `podresources-max-age` means.
pub fn max_age(value: &http::HeaderValue) -> Result<Option<Duration>, Status> {
    crate::serve::max_age(value)
}

/// What the kernel says of its types, as the eBPF programs take it: the offsets that were found, and what is amiss.
pub fn kernel_types(btf: &[u8]) -> String {
    crate::change::ebpf::kernel_types(btf)
}
