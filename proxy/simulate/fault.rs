//! Ways in which an answer can go wrong, for tests of whoever stands in front.

use std::collections::VecDeque;

use crate::grpc::Status;

use super::service::Method;

/// Something that goes wrong with some of the next calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    broken: Broken,
    /// Which method's calls; `None`: whichever comes.
    method: Option<Method>,
    /// How many calls are left; `None`: all until [`super::Simulator::clear_faults`].
    times: Option<u32>,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The call ends with this status and no message.
    Status(Status),
    /// The message stops half way, the call ends well.
    Truncated,
    /// The prefix announces this many bytes more (or fewer) than there are.
    WrongLength(i32),
    /// A well-framed message of bytes that are no protobuf.
    Garbage,
    /// A well-formed List reply of at least this many bytes.
    Large(usize),
    /// The connection is closed after half of the message.
    DropConnection,
    /// The stream is reset after half of the message.
    Reset,
    /// The stream ends without a status.
    NoTrailers,
    /// No answer, ever.
    Hang,
}

/// Faults in the order in which they were asked for.
#[derive(Debug, Default)]
pub(super) struct Faults(VecDeque<Fault>);

// === impl Fault ===

impl Fault {
    /// Goes wrong once, whichever method is called.
    pub fn new(broken: Broken) -> Self {
        Self { broken, method: None, times: Some(1) }
    }

    /// For calls of this method.
    #[must_use]
    pub fn on(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// For so many calls.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// For all calls, until the faults are cleared.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }
}

impl From<Broken> for Fault {
    fn from(broken: Broken) -> Self {
        Self::new(broken)
    }
}

// === impl Faults ===

impl Faults {
    pub(super) fn push(&mut self, fault: Fault) {
        self.0.push_back(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What is to go wrong with this call.
    pub(super) fn next(&mut self, method: Method) -> Option<Broken> {
        self.0.retain(|fault| fault.times != Some(0));
        let fault = self.0.iter_mut().find(|fault| fault.method.is_none_or(|on| on == method))?;
        fault.times = fault.times.map(|times| times - 1);
        Some(fault.broken.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_hits_its_own_method_as_often_as_asked_and_then_the_next_one_comes() {
        let mut faults = Faults::default();
        faults.push(Fault::new(Broken::Garbage).on(Method::List).times(2));
        faults.push(Fault::new(Broken::Truncated));
        assert_eq!(faults.next(Method::List), Some(Broken::Garbage));
        assert_eq!(faults.next(Method::Get), Some(Broken::Truncated));
        assert_eq!(faults.next(Method::Get), None);
        assert_eq!(faults.next(Method::List), Some(Broken::Garbage));
        assert_eq!(faults.next(Method::List), None);
    }

    #[test]
    fn a_lasting_fault_lasts_until_faults_are_cleared() {
        let mut faults = Faults::default();
        faults.push(Fault::new(Broken::Hang).always());
        assert!((0..100).all(|_| faults.next(Method::AlphaList) == Some(Broken::Hang)));
        faults.clear();
        assert_eq!(faults.next(Method::AlphaList), None);
    }
}
