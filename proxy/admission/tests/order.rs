//! The fair queue.

use std::collections::HashMap;
use std::num::NonZeroU32;

use proptest::prelude::*;

use crate::admission::Fair;
use crate::answer::Who;

fn who(id: u64, weight: u32) -> Who {
    Who { id, weight: NonZeroU32::new(weight).unwrap() }
}

fn any<T>(_: &T) -> bool {
    true
}

#[test]
fn one_that_asks_for_little_waits_for_one_job_of_each_other_at_most() {
    let mut fair = Fair::new();
    for job in 0..1_000 {
        fair.push(who(1, 1), (1, job));
        fair.push(who(2, 1), (2, job));
    }
    for _ in 0..100 {
        fair.pop(any);
    }
    fair.push(who(3, 1), (3, 0));
    let before = std::iter::from_fn(|| fair.pop(any)).position(|(id, _)| id == 3).unwrap();
    assert!(before <= 2, "{before} were before it");
}

#[test]
fn jobs_of_one_client_keep_their_order_and_one_that_may_not_go_holds_up_nobody() {
    let mut fair = Fair::new();
    for job in ["a", "b", "c"] {
        fair.push(who(1, 1), job);
    }
    assert_eq!(fair.pop(|job| *job != "a"), Some("b"));
    assert_eq!(fair.pop(|job| *job != "a"), Some("c"));
    assert_eq!(fair.pop(|job| *job != "a"), None);
    assert_eq!((fair.pop(any), fair.len()), (Some("a"), 0));
}

#[test]
fn going_away_and_coming_back_wins_nothing() {
    let mut fair = Fair::new();
    let mut served = HashMap::new();
    for job in 0..1_000 {
        fair.push(who(1, 1), 1);
        // The other one always waits with one job only, and comes anew when that is done.
        if fair.len_of(who(2, 1)) == 0 {
            fair.push(who(2, 1), 2);
        }
        assert!(job < 10 || fair.len_of(who(1, 1)) > 0);
        *served.entry(fair.pop(any).unwrap()).or_insert(0) += 1;
    }
    assert!((495..=505).contains(&served[&2]), "{served:?}");
}

#[test]
fn what_is_shed_is_the_last_of_whoever_has_most() {
    let mut fair = Fair::new();
    for job in 0..3 {
        fair.push(who(1, 1), (1, job));
    }
    fair.push(who(2, 1), (2, 0));
    assert_eq!(fair.shed(), Some((1, 2)));
    assert_eq!(fair.shed(), Some((1, 1)));
    assert_eq!(fair.len(), 2);
    fair.retain(|(id, _)| *id == 2);
    assert_eq!((fair.len(), fair.len_of(who(1, 1))), (1, 0));
}

proptest! {
    /// Weights hold within 5 % where all want more than there is, however jobs come.
    #[test]
    fn each_gets_a_part_by_its_weight(weights in prop::collection::vec(1_u32..16, 2..8), bursts in prop::collection::vec(1_usize..40, 8)) {
        let mut fair = Fair::new();
        let mut served = vec![0_u32; weights.len()];
        let total: u32 = weights.iter().sum();
        let rounds = 200 * total;
        for _ in 0..rounds {
            for (id, weight) in weights.iter().enumerate() {
                let client = who(id as u64, *weight);
                if fair.len_of(client) == 0 {
                    (0..bursts[id]).for_each(|_| fair.push(client, id));
                }
            }
            served[fair.pop(any).unwrap()] += 1;
        }
        for (weight, served) in weights.iter().zip(&served) {
            let part = f64::from(rounds) * f64::from(*weight) / f64::from(total);
            prop_assert!((f64::from(*served) / part - 1.0).abs() < 0.05, "{weights:?}: {served} where {part} were due");
        }
    }
}
