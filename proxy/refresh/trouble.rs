//! Which failures have been told, so that the log says each once until things are well again. Pure.

use std::mem::{Discriminant, discriminant};

use crate::grpc::Code;
use crate::source::Failure;

/// A part of a flight that can fail by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Connecting,
    List,
    Allocatable,
    AlphaList,
}

/// What is wrong at the moment.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    /// By kind and not by text, which may differ each time: a number of bytes, of a stream. That bounds them too.
    told: Vec<(Step, Discriminant<Failure>, Option<Code>)>,
    /// Where the last one was met.
    last: Option<Step>,
}

// === impl Troubles ===

impl Troubles {
    /// A step failed. Whether this is the first failure of its kind since the step went well.
    pub(super) fn met(&mut self, step: Step, failure: &Failure) -> bool {
        let code = if let Failure::Answered(status) = failure { Some(status.code) } else { None };
        let kind = (step, discriminant(failure), code);
        self.last = Some(step);
        let new = !self.told.contains(&kind);
        if new {
            self.told.push(kind);
        }
        new
    }

    /// A step went well. Whether the last failure was its own, and so is past.
    pub(super) fn over(&mut self, step: Step) -> bool {
        self.told.retain(|(at, ..)| *at != step);
        self.last.take_if(|last| *last == step).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Failure {
        Failure::Broken(text.to_owned())
    }

    #[test]
    fn a_kind_of_failure_is_new_once_until_its_own_step_goes_well() {
        let mut troubles = Troubles::default();
        assert!(troubles.met(Step::Allocatable, &broken("byte 7")));
        assert!(!troubles.met(Step::Allocatable, &broken("byte 8")));
        assert!(troubles.met(Step::Allocatable, &Failure::RateLimited));
        assert!(troubles.met(Step::List, &broken("byte 7")), "another step");
        troubles.over(Step::List);
        assert!(!troubles.met(Step::Allocatable, &broken("byte 9")), "that another step goes well says nothing");
        troubles.over(Step::Allocatable);
        assert!(troubles.met(Step::Allocatable, &broken("byte 7")));
    }

    #[test]
    fn the_last_failure_is_past_when_its_own_step_goes_well() {
        let mut troubles = Troubles::default();
        assert!(!troubles.over(Step::List));
        troubles.met(Step::Allocatable, &broken(""));
        assert!(!troubles.over(Step::List));
        assert!(troubles.over(Step::Allocatable));
        assert!(!troubles.over(Step::Allocatable));
    }
}
