//! A client's state under every order of events that two threads can have, as loom makes them. The files are those of the library,
//! compiled here with loom's atomics.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod atomic {
    pub(super) use loom::sync::atomic::AtomicU64;
}
#[path = "../../proxy/admission/bucket.rs"]
#[expect(dead_code, unreachable_pub, reason = "the library uses more of it than these tests")]
mod bucket;
#[path = "../../proxy/admission/flood.rs"]
#[expect(dead_code, reason = "the library uses more of it than these tests")]
mod flood;

use bucket::{Bucket, Pace};
use flood::Flood;
use loom::sync::Arc;
use loom::thread;

const SECOND: u64 = 1_000_000_000;

/// What `act` returned on each of two threads, this one included.
fn on_two_threads<T: Send + 'static>(act: impl Fn(u64) -> T + Send + Sync + 'static) -> [T; 2] {
    let act = std::sync::Arc::new(act);
    let other = {
        let act = std::sync::Arc::clone(&act);
        thread::spawn(move || act(1))
    };
    let mine = act(0);
    [mine, other.join().unwrap()]
}

#[test]
fn no_token_is_given_out_twice_and_none_is_lost() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::full());
        let pace = Pace::new(1.0, 3);
        let taker = Arc::clone(&bucket);
        let taken = on_two_threads(move |_| (0..2).filter(|_| taker.take(1, pace, SECOND).is_ok()).count());
        assert_eq!(taken.iter().sum::<usize>(), 3);
        assert_eq!(bucket.left(pace, SECOND), 0);
    });
}

#[test]
fn threads_whose_clocks_differ_get_no_more_than_the_later_one_allows() {
    loom::model(|| {
        let bucket = Arc::new(Bucket::full());
        let pace = Pace::new(1.0, 2);
        let taken = on_two_threads(move |thread| {
            let now = SECOND + thread * SECOND;
            (0..2).filter(|_| bucket.take(1, pace, now).is_ok()).count()
        });
        let taken: usize = taken.iter().sum();
        assert!((2..=3).contains(&taken), "{taken}");
    });
}

#[test]
fn of_all_refusals_exactly_one_is_the_one_too_many() {
    loom::model(|| {
        let flood = Arc::new(Flood::new());
        let over = on_two_threads(move |_| (0..2).filter(|_| flood.refused(2, SECOND)).count());
        assert_eq!(over.iter().sum::<usize>(), 1, "the third of four");
    });
}
