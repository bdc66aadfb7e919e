//! The saved snapshot: only what was sealed is read, and what is read is what would be written.

use bytes::Bytes;
use podresources_proxy::fuzzing::{seal_record, unseal_record};
use podresources_proxy::keep::{Stamp, Stamps, Unreadable};

use super::source::Source;

pub(crate) fn check(input: &[u8]) {
    let mut source = Source(input);
    if source.below(4) == 0 {
        let file = Bytes::copy_from_slice(source.0);
        if let Ok((again, stamps)) = unseal_record(&file) {
            assert_eq!(unseal_record(&again.clone().into()), Ok((again, stamps)));
        }
        return;
    }
    let (at, flip) = (usize::from(source.byte()) << 8 | usize::from(source.byte()), source.byte() | 1);
    let mut stamp = || Stamp::from_nanos(u64::from(source.byte()) << (source.byte() % 57));
    let stamps = Stamps { list: stamp(), allocatable: stamp(), alpha: stamp() };
    let file = seal_record(source.0, stamps);
    match unseal_record(&file.clone().into()) {
        Ok((again, read)) => {
            assert_eq!(read, stamps);
            assert_eq!(unseal_record(&again.clone().into()), Ok((again, stamps)));
        }
        Err(error) => assert_eq!(error, Unreadable::Corrupted, "its sums are right, and its body is none of ours"),
    }
    let mut flipped = file.clone();
    let place = at % file.len();
    flipped[place] ^= flip;
    assert!(unseal_record(&flipped.into()).is_err(), "byte {place} does not count");
    assert!(unseal_record(&Bytes::copy_from_slice(&file[..place])).is_err(), "cut off at {place}");
}
