//! The bucket in one word against a plain one.

use proptest::prelude::*;

use super::super::flood::Flood;
use super::super::{Bucket, Pace};

const MS: u64 = 1_000_000;

/// A token bucket as one would write it on paper: credit in nanoseconds, filled up at each look.
struct Plain {
    interval: u128,
    depth: u128,
    credit: u128,
    as_of: u64,
}

impl Plain {
    fn take(&mut self, tokens: u64, now: u64) -> Result<(), u128> {
        self.credit = (self.credit + u128::from(now - self.as_of)).min(self.depth);
        self.as_of = now;
        let cost = self.interval * u128::from(tokens);
        if self.credit < cost {
            return Err(cost - self.credit);
        }
        self.credit -= cost;
        Ok(())
    }
}

proptest! {
    #[test]
    fn the_bucket_in_one_word_does_what_a_plain_one_does(
        interval_ms in 1_u32..50,
        burst in 1_u32..20,
        start in 0_u64..10_000,
        steps in prop::collection::vec((0_u64..200 * MS, 1_u64..4), 1..200),
    ) {
        let pace = Pace::new(1_000.0 / f64::from(interval_ms), burst);
        let interval = u128::from(interval_ms) * u128::from(MS);
        let mut plain = Plain { interval, depth: interval * u128::from(burst), credit: interval * u128::from(burst), as_of: start };
        let bucket = Bucket::full();
        let mut now = start;
        for (gone, tokens) in steps {
            now += gone;
            let expected = plain.take(tokens, now).map_err(|wait| u64::try_from(wait).unwrap());
            prop_assert_eq!(bucket.take(tokens, pace, now), expected);
            prop_assert_eq!(u128::from(bucket.left(pace, now)), plain.credit / plain.interval);
            prop_assert_eq!(bucket.is_full(now), plain.credit == plain.depth);
        }
    }

    #[test]
    fn the_wait_that_is_told_is_enough_and_not_a_nanosecond_too_long(burst in 1_u32..20, now in 0_u64..1_000_000) {
        let (bucket, pace) = (Bucket::full(), Pace::new(100.0, burst));
        let wait = (0..).find_map(|_| bucket.take(1, pace, now).err()).unwrap();
        prop_assert_eq!(bucket.take(1, pace, now + wait - 1), Err(1));
        prop_assert_eq!(bucket.take(1, pace, now + wait), Ok(()));
    }

    /// Within a user, connections are told apart: whoever keeps to its part is served, whatever the others take.
    #[test]
    fn equal_parts_are_always_there(sharers in 2_u64..20, steps in prop::collection::vec((0_u64..20 * MS, 0_u64..20, 1_usize..60), 1..120)) {
        let (whole, pace) = (Bucket::full(), Pace::new(100.0, 100));
        let own: Vec<Bucket> = (0..sharers).map(|_| Bucket::full()).collect();
        let (mut now, mut taken) = (0, 0_u64);
        for (gone, who, calls) in steps {
            now += gone;
            for _ in 0..calls {
                let part = own[usize::try_from(who % sharers).unwrap()].take(1, pace.share(sharers), now).is_ok();
                let got = if part { whole.take(1, pace, now) } else { whole.take(1, pace.half(), now) };
                prop_assert!(!part || got.is_ok(), "a part was refused");
                taken += u64::from(got.is_ok());
            }
            prop_assert!(taken <= 100 + now / (10 * MS), "{} of the whole", taken);
        }
    }
}

#[test]
fn odd_rates_neither_panic_nor_give_everything() {
    for (rate, burst) in [(0.0, 1), (f64::MIN_POSITIVE, 1), (f64::MAX, u32::MAX), (1e-30, u32::MAX), (3.0, 0)] {
        let (bucket, pace) = (Bucket::full(), Pace::new(rate, burst));
        assert_eq!(bucket.take(1, pace, u64::MAX / 2), Ok(()), "{rate} {burst}");
        assert!(bucket.take(u64::MAX, pace, u64::MAX / 2).is_err(), "{rate} {burst}");
    }
}

#[test]
fn more_refusals_than_bearable_within_a_second_are_a_flood_and_the_count_begins_anew() {
    let flood = Flood::new();
    let over = |count: u64, now: u64| (0..count).filter(|_| flood.refused(200, now)).count();
    assert_eq!(over(200, 0), 0);
    assert_eq!(over(1, 999 * MS), 1);
    assert_eq!(over(200, 999 * MS), 0);
    assert_eq!(over(200, 1_999 * MS), 0, "a second later they count no more");
    assert!(!flood.is_over(2_998 * MS));
    assert!(flood.is_over(2_999 * MS));
}
