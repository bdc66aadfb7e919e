//! What real clients wrote, replayed.

use super::server::serve;

macro_rules! cases {
    ($($number:literal),*) => {
        [$(($number, include_bytes!(concat!("../../../../tests/cases/clients/", $number, ".bin")).as_slice())),*]
    };
}

#[test]
fn every_recorded_client_is_answered() {
    for (case, bytes) in cases!("1", "2", "3", "4", "5", "6", "7", "10", "11") {
        let outcome = serve(bytes);
        assert_eq!((outcome.answered(), outcome.gone), (1, None), "{case}.bin {outcome:?}");
    }
}
