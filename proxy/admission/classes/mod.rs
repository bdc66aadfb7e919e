//! Classes of clients: from who a client is to the rules that it goes by.
//!
//! A client is matched when it comes, once for each method that some class names, and then holds the outcome: no call compares a text.

mod whole;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use crate::config::{Class, Each};
use crate::peer::{Client, Peer};
use crate::serve::Method;

use super::rules::ByMethod;
use super::{Classify, Limits, Rules};

pub(super) use whole::{Counted, Whole};

/// The classes in force.
#[derive(Debug)]
pub struct Classes {
    /// What holds where no class takes a client, or says otherwise.
    base: Limits,
    /// In the order in which they are tried.
    classes: Vec<(Class, Option<Arc<Whole>>)>,
}

// === impl Classes ===

impl Classes {
    /// Classes in their order. What the clients of a class have together outlives its `previous` form, by the class's name: nobody's
    /// connections are forgotten, and no bucket is full again, because the rules were read anew.
    #[must_use]
    pub fn new(base: Limits, classes: Vec<Class>, previous: Option<&Self>) -> Self {
        let before: HashMap<&str, &Arc<Whole>> = previous
            .into_iter()
            .flat_map(|previous| &previous.classes)
            .filter_map(|(class, whole)| Some((class.name.as_str(), whole.as_ref()?)))
            .collect();
        let with_whole = |class: Class| {
            let whole = Whole::new(&class.name, class.whole, before.get(class.name.as_str()).copied());
            (class, whole.map(Arc::new))
        };
        let classes = classes.into_iter().map(with_whole).collect();
        Self { base, classes }
    }

    /// The rules of a client. Those who were gone before it could be told who they were have a tenth of them all together.
    #[must_use]
    pub fn rules(&self, peer: &Peer) -> Rules {
        let own = self.find(peer, None);
        let methods = Method::ALL.map(|method| self.find(peer, Some(method)));
        let mut rules = self.of(peer, own);
        if methods.iter().any(|found| *found != own) {
            rules.by_method = Some(Box::new(Method::ALL.map(|method| {
                let found = methods[method as usize].filter(|found| Some(*found) != own)?;
                // Methods of one class share its bucket.
                let first = methods.iter().position(|other| *other == Some(found))?;
                Some(ByMethod { rules: self.of(peer, Some(found)), bucket: first })
            })));
        }
        rules
    }

    /// As the client table takes them.
    #[must_use]
    pub fn classify(self: Arc<Self>) -> Box<Classify> {
        Box::new(move |peer| Arc::new(self.rules(peer)))
    }

    /// The first class that takes this peer, for this method; without one, the first that takes it for all methods.
    fn find(&self, peer: &Peer, method: Option<Method>) -> Option<usize> {
        self.classes.iter().position(|(class, _)| {
            let for_method = !class.has_methods() || method.is_some_and(|method| class.methods[method as usize]);
            for_method && takes(class, peer)
        })
    }

    fn of(&self, peer: &Peer, class: Option<usize>) -> Rules {
        let departed = |limits: Limits| if peer.client == Client::Departed { limits.departed() } else { limits };
        match class.and_then(|at| self.classes.get(at)) {
            None => Rules::new(departed(self.base.clone())),
            Some((class, whole)) => Rules {
                class: Some(class.name.as_str().into()),
                whole: whole.clone(),
                max_age: class.max_age,
                on_stale: class.on_stale,
                ..Rules::new(departed(limits(&self.base, class)))
            },
        }
    }
}

/// Whether a class takes a peer. What a class says of pods, units and users is about clients that are such: a pod's process is not its
/// user's, and a pod whose name is not known is in no namespace.
fn takes(class: &Class, peer: &Peer) -> bool {
    if class.takes_everybody() {
        return true;
    }
    match &peer.client {
        Client::Pod { .. } => {
            let about_pods = !class.namespaces.is_empty() || !class.pods.is_empty();
            about_pods
                && peer.pod.as_ref().is_some_and(|pod| {
                    let namespace = class.namespaces.is_empty() || class.namespaces.contains(&pod.namespace);
                    namespace && (class.pods.is_empty() || class.pods.iter().any(|prefix| pod.name.starts_with(prefix)))
                })
        }
        Client::Unit(unit) => class.units.iter().any(|name| name == unit.as_str()),
        Client::Uid(uid) => class.uids.contains(uid),
        Client::Departed => false,
    }
}

fn limits(base: &Limits, class: &Class) -> Limits {
    let Each { rate, burst, weight, connections, calls, waiting_bytes } = class.each;
    Limits {
        deny: class.deny,
        rate: rate.unwrap_or(base.rate),
        burst: burst.map_or(base.burst, std::num::NonZeroU32::get),
        weight: weight.unwrap_or(base.weight),
        connections: connections.map_or(base.connections, std::num::NonZeroU32::get),
        calls: calls.map_or(base.calls, std::num::NonZeroU32::get),
        waiting_bytes: waiting_bytes.map_or(base.waiting_bytes, |bytes| bytes as u64),
    }
}
