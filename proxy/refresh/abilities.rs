//! What the kubelet has shown that it can do, and what that says of its version, which the API does not tell. Pure.

use std::fmt;

use super::stats::CALLS;
use crate::grpc::Code;
use crate::proto::v1::ListPodResourcesResponse;
use crate::source::{Failure, Reply};

/// How many Lists with new content are looked at for fields: the first ones after a start are short.
const LOOKS: u8 = 5;

/// Minor versions of Kubernetes 1.
type Minor = u32;

/// What one kubelet has shown so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// By index into [`CALLS`]; `None`: not asked yet.
    answers: [Option<Answers>; CALLS.len()],
    /// The oldest version that sends the fields that were seen.
    fields: Minor,
    looks: u8,
}

/// How a method was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    Yes,
    /// The method is there, and switched off.
    Off,
    /// There is no such method.
    No,
}

/// This kubelet and the one before its restart, so that the log says each thing once.
#[derive(Debug, Default)]
pub(super) struct Kubelets {
    now: Abilities,
    before: Option<Abilities>,
    told: bool,
}

// === impl Abilities ===

impl Abilities {
    /// A call has ended. `call` is an index into [`CALLS`].
    fn learn(&mut self, call: usize, result: &Result<Reply, Failure>) {
        let answers = match result {
            Ok(_) => Answers::Yes,
            Err(Failure::Answered(status)) if status.code == Code::Unimplemented => Answers::No,
            Err(Failure::Answered(status)) if status.code == Code::Unknown && status.message.ends_with(" disabled") => Answers::Off,
            // A pod that it does not know: that is an answer too.
            Err(Failure::Answered(status)) if status.code == Code::Unknown && CALLS[call] == "Get" => Answers::Yes,
            Err(_) => return,
        };
        self.answers[call] = Some(answers);
    }

    /// A List has new content.
    fn look(&mut self, list: impl FnOnce() -> Option<ListPodResourcesResponse>) {
        if self.looks < LOOKS
            && let Some(list) = list()
        {
            self.looks += 1;
            self.fields = self.fields.max(since(&list));
        }
    }

    /// The versions that answer so: from, and up to where that shows (docs: the API by version).
    fn versions(&self) -> (Minor, Option<Minor>) {
        let [_, allocatable, get, _] = self.answers;
        let (from_allocatable, to_allocatable) = match allocatable {
            Some(Answers::No) => (20, Some(20)),
            Some(Answers::Yes | Answers::Off) => (21, None),
            None => (20, None),
        };
        let (from_get, to_get) = match get {
            Some(Answers::No) => (20, Some(26)),
            Some(Answers::Yes | Answers::Off) => (27, None),
            None => (20, None),
        };
        let to = [to_allocatable, to_get].into_iter().flatten().min();
        (self.fields.max(from_allocatable).max(from_get), to)
    }

    /// Whether this cannot be the kubelet that showed the other.
    fn contradicts(&self, other: &Self) -> bool {
        let differ = |(ours, theirs): (&Option<Answers>, &Option<Answers>)| ours.is_some() && theirs.is_some() && ours != theirs;
        self.answers.iter().zip(&other.answers).any(differ)
    }
}

/// The oldest version whose List has these fields.
fn since(list: &ListPodResourcesResponse) -> Minor {
    let of_containers = list.pod_resources.iter().flat_map(|pod| &pod.containers).map(|container| {
        let claims = container.dynamic_resources.iter().flat_map(|claim| &claim.claim_resources);
        match () {
            () if claims.clone().any(|claim| claim.share_id.is_some()) => 35,
            () if claims.clone().any(|claim| !claim.driver_name.is_empty()) => 31,
            () if !container.dynamic_resources.is_empty() => 27,
            () if !container.memory.is_empty() => 22,
            () => 20,
        }
    });
    let of_pods = list.pod_resources.iter().map(|pod| if pod.cpu_ids.is_empty() && pod.memory.is_empty() { 20 } else { 37 });
    of_containers.chain(of_pods).max().unwrap_or(20)
}

impl fmt::Display for Abilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let with = |which: &[Answers]| {
            let names = CALLS.iter().zip(&self.answers).filter(|(_, how)| how.is_some_and(|how| which.contains(&how)));
            names.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        write!(f, "{}", with(&[Answers::Yes]))?;
        let (off, missing) = (with(&[Answers::Off]), with(&[Answers::No]));
        if !off.is_empty() {
            write!(f, "; switched off: {off}")?;
        }
        if !missing.is_empty() {
            write!(f, "; not there: {missing}")?;
        }
        match self.versions() {
            (from, None) => write!(f, " (Kubernetes 1.{from} or later)"),
            (from, Some(to)) if from == to => write!(f, " (Kubernetes 1.{from})"),
            (from, Some(to)) if from < to => write!(f, " (Kubernetes 1.{from} to 1.{to})"),
            (_, Some(_)) => write!(f, " (no version of Kubernetes that is known here)"),
        }
    }
}

// === impl Kubelets ===

impl Kubelets {
    /// See [`Abilities::learn`].
    pub(super) fn learn(&mut self, call: usize, result: &Result<Reply, Failure>) {
        self.now.learn(call, result);
    }

    /// See [`Abilities::look`].
    pub(super) fn look(&mut self, list: impl FnOnce() -> Option<ListPodResourcesResponse>) {
        self.now.look(list);
    }

    /// Another kubelet answers from now on.
    pub(super) fn restarted(&mut self) {
        self.before = Some(std::mem::take(&mut self.now));
    }

    /// What this kubelet has shown so far, for people; `None` before its first List.
    pub(super) fn shown(&self) -> Option<String> {
        self.now.answers[0].map(|_| self.now.to_string())
    }

    /// The same, where the log should say it: for the first kubelet, and for one that answers otherwise than the one before.
    pub(super) fn news(&mut self) -> Option<String> {
        let [list, allocatable, ..] = self.now.answers;
        list.and(allocatable)?;
        let another = self.before.as_ref().is_some_and(|before| self.now.contradicts(before));
        if self.told && !another {
            return None;
        }
        self.told = true;
        self.before = None;
        Some(self.now.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::Status;
    use crate::proto::v1;

    const ANSWERED: Result<Reply, Failure> = Ok(Reply { message: bytes::Bytes::new(), connection: 1 });

    fn error(code: Code, text: &str) -> Result<Reply, Failure> {
        Err(Failure::Answered(Status::new(code, text.to_owned())))
    }

    fn shown(results: &[(usize, Result<Reply, Failure>)], list: &ListPodResourcesResponse) -> String {
        let mut abilities = Abilities::default();
        for (call, result) in results {
            abilities.learn(*call, result);
        }
        abilities.look(|| Some(list.clone()));
        abilities.to_string()
    }

    fn list(pod: v1::PodResources) -> ListPodResourcesResponse {
        ListPodResourcesResponse { pod_resources: vec![pod] }
    }

    #[test]
    fn what_is_answered_tells_a_range_of_versions_and_no_more() {
        let none = list(v1::PodResources::default());
        let missing = || error(Code::Unimplemented, "unknown method");
        assert_eq!(shown(&[(0, ANSWERED), (1, missing())], &none), "List; not there: GetAllocatableResources (Kubernetes 1.20)");
        let old = [(0, ANSWERED), (1, ANSWERED), (2, missing())];
        assert_eq!(shown(&old, &none), "List, GetAllocatableResources; not there: Get (Kubernetes 1.21 to 1.26)");
        let off = [(0, ANSWERED), (1, ANSWERED), (2, error(Code::Unknown, "PodResources API Get method disabled"))];
        assert_eq!(shown(&off, &none), "List, GetAllocatableResources; switched off: Get (Kubernetes 1.27 or later)");
        let unknown_pod = [(0, ANSWERED), (2, error(Code::Unknown, "pod x in namespace y not found"))];
        assert_eq!(shown(&unknown_pod, &none), "List, Get (Kubernetes 1.27 or later)");
        let pod_level = list(v1::PodResources { cpu_ids: vec![1], ..Default::default() });
        assert_eq!(shown(&[(0, ANSWERED)], &pod_level), "List (Kubernetes 1.37 or later)");
    }

    #[test]
    fn a_failure_that_is_no_answer_says_nothing() {
        assert_eq!(
            shown(&[(0, ANSWERED), (1, Err(Failure::RateLimited))], &list(v1::PodResources::default())),
            "List (Kubernetes 1.20 or later)"
        );
    }

    #[test]
    fn the_log_says_it_once_and_again_where_a_restarted_kubelet_answers_otherwise() {
        let mut kubelets = Kubelets::default();
        kubelets.learn(0, &ANSWERED);
        assert_eq!(kubelets.news(), None, "one thing is missing yet");
        kubelets.learn(1, &ANSWERED);
        assert!(kubelets.news().is_some());
        kubelets.restarted();
        kubelets.learn(0, &ANSWERED);
        kubelets.learn(1, &ANSWERED);
        assert_eq!(kubelets.news(), None, "the same");
        kubelets.restarted();
        kubelets.learn(0, &ANSWERED);
        kubelets.learn(1, &error(Code::Unimplemented, ""));
        assert!(kubelets.news().is_some_and(|news| news.contains("not there: GetAllocatableResources")));
        assert_eq!(kubelets.news(), None);
    }
}
