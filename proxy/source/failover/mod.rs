//! The kubelet, and the host in its place while it does not answer (`--failover host`).
//!
//! Devices are the kubelet's to tell: pods that it told keep its record of them. The refresher switches ([`Upstream::switch`]); here is
//! decided when. Nothing is given out while no kubelet runs, so what it said last is still true of the pods that are there.

mod board;
mod overlay;

use std::cell::RefCell;
use std::collections::HashSet;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Call, Failure, Reply, Upstream};
use crate::answer;
use crate::grpc::{Code, Status};
use crate::snapshot::{Malformed, PodName};

pub use board::{Board, Wish};

/// Between two looks whether the kubelet answers again.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// How long it must answer before it is believed: at least two answers.
const HOLD: Duration = Duration::from_secs(1);

/// A kubelet that goes away again so soon after it came back has to answer for twice as long the next time.
const FLAPPING: Duration = Duration::from_mins(1);

/// However often it went away.
const LONGEST_HOLD: Duration = Duration::from_secs(32);

/// When the host stands in.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// After the kubelet has not answered for so long.
    pub after: Duration,
    /// Also where the kubelet has never told anything, so that answers lack all devices.
    pub partial: bool,
}

/// One source in the place of another. A clone shares everything.
#[derive(Clone, Debug)]
pub struct Failover<K, H> {
    kubelet: K,
    host: H,
    config: Config,
    board: Board,
    state: Rc<RefCell<State>>,
}

#[derive(Debug)]
struct State {
    on_host: bool,
    /// Since when the kubelet has not answered, though it was asked.
    trouble: Option<Instant>,
    /// What the kubelet told last, as it was published.
    last: Last,
    /// Pods of the host's that the kubelet did not know.
    unknown: Option<Arc<HashSet<PodName>>>,
    switches: u64,
    /// When the kubelet was taken back last.
    back: Option<Instant>,
    hold: Duration,
    /// The kubelet has answered for long enough.
    confirmed: bool,
    probing: bool,
}

#[derive(Debug, Default)]
struct Last {
    list: Option<Bytes>,
    alpha: Option<Bytes>,
    allocatable: Option<Bytes>,
}

// === impl Failover ===

impl<K: Upstream, H: Upstream> Failover<K, H> {
    /// The kubelet, with the host in reserve.
    #[must_use]
    pub fn new(kubelet: K, host: H, config: Config, board: Board) -> Self {
        let state = State {
            on_host: false,
            trouble: None,
            last: Last::default(),
            unknown: None,
            switches: 0,
            back: None,
            hold: HOLD,
            confirmed: false,
            probing: false,
        };
        Self { kubelet, host, config, board, state: Rc::new(RefCell::new(state)) }
    }

    fn on_host(&self) -> bool {
        self.state.borrow().on_host
    }

    /// Whether the host can stand in: without devices it would be believed, and they given away twice.
    fn can_stand_in(&self) -> bool {
        let had = self.state.borrow().last.list.is_some();
        (had || self.config.partial) && self.kubelet.source() == answer::Source::Kubelet
    }

    fn wants_switch(&self, now: Instant) -> bool {
        self.due().is_some_and(|due| due <= now)
    }

    /// Notes how an attempt went that began then.
    fn note<T>(&self, began: Instant, result: &Result<T, Failure>, is_answer: bool) {
        let mut state = self.state.borrow_mut();
        match result {
            // A socket that takes connections says nothing yet.
            Ok(_) if is_answer => state.trouble = None,
            Ok(_) => {}
            Err(Failure::Unreachable(_) | Failure::Lost(_) | Failure::Late(_)) => {
                state.trouble.get_or_insert(began);
            }
            // It answers.
            Err(Failure::RateLimited | Failure::TooLarge(_) | Failure::Broken(_) | Failure::Answered(_)) => state.trouble = None,
        }
    }

    /// Asks the kubelet, as long as nobody wants another source meanwhile.
    async fn ask_kubelet(&self, call: Call<'_>) -> Result<Reply, Failure> {
        let began = Instant::now();
        let mut reply = pin!(self.kubelet.call(call));
        if matches!(call, Call::Get { .. }) {
            return reply.await;
        }
        let trouble = self.state.borrow().trouble.unwrap_or(began);
        let until = if self.can_stand_in() && self.board.wish() == Wish::Auto { Some(trouble + self.config.after) } else { None };
        let out_of_time = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let mut out_of_time = pin!(out_of_time);
        let reply = loop {
            tokio::select! {
                reply = &mut reply => break reply,
                () = &mut out_of_time => break Err(Failure::Late(began.elapsed())),
                () = self.board.stirred() => {
                    if self.wants_switch(Instant::now()) {
                        break Err(Failure::Lost("another source was chosen during the call".to_owned()));
                    }
                }
            }
        };
        // The others may be off, or slow.
        if call == Call::List {
            self.note(began, &reply, true);
        }
        reply
    }

    async fn ask_host(&self, call: Call<'_>) -> Result<Reply, Failure> {
        if let Call::Get { name, namespace } = call {
            let text = format!(
                "podresources-proxy: the host answers in the kubelet's place, and only the kubelet can say whether there is a pod {name} in namespace {namespace}"
            );
            return Err(Failure::Answered(Status::new(Code::Unavailable, text)));
        }
        let reply = self.host.call(call).await?;
        let (last, partial) = {
            let last = &self.state.borrow().last;
            let last = match call {
                Call::Allocatable => last.allocatable.clone(),
                // A `v1` record reads as a `v1alpha1` one with fields that are unknown there.
                Call::AlphaList => last.alpha.clone().or_else(|| last.list.clone()),
                Call::List | Call::Get { .. } => last.list.clone(),
            };
            (last, self.config.partial)
        };
        let Some(last) = last else {
            if partial {
                return Ok(reply);
            }
            let text = "podresources-proxy: the kubelet has never told this, and the host does not know devices (--host-answers)";
            return Err(Failure::Answered(Status::new(Code::Unavailable, text)));
        };
        let broken =
            |error: Malformed| Failure::Broken(format!("what the kubelet told last cannot be put together with the host: {error}"));
        let message = match call {
            Call::Allocatable => overlay::allocatable(&reply.message, &last).map_err(broken)?,
            Call::List | Call::AlphaList | Call::Get { .. } => {
                let (message, unknown) = overlay::list(&reply.message, &last).map_err(broken)?;
                if call == Call::List {
                    self.state.borrow_mut().unknown = Some(Arc::new(unknown));
                }
                message
            }
        };
        Ok(Reply { message: message.into(), ..reply })
    }

    /// Looks whether the kubelet answers again, until it is the source.
    async fn probe(self) {
        let mut answering: Option<Instant> = None;
        while self.on_host() {
            sleep(PROBE_EVERY).await;
            let began = Instant::now();
            let answered = self.kubelet.call(Call::List).await.is_ok();
            if !answered {
                answering = None;
                self.state.borrow_mut().confirmed = false;
                continue;
            }
            let since = *answering.get_or_insert(began);
            if began.saturating_duration_since(since) >= self.state.borrow().hold {
                self.state.borrow_mut().confirmed = true;
                self.board.stir();
            }
        }
        self.state.borrow_mut().probing = false;
    }
}

impl<K: Upstream, H: Upstream> Upstream for Failover<K, H> {
    fn source(&self) -> answer::Source {
        if self.on_host() { self.host.source() } else { self.kubelet.source() }
    }

    async fn connect(&self) -> Result<(), Failure> {
        if self.on_host() {
            return self.host.connect().await;
        }
        let began = Instant::now();
        let connected = self.kubelet.connect().await;
        self.note(began, &connected, false);
        connected
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        let on_host = self.on_host();
        let reply = if on_host { self.ask_host(call).await? } else { self.ask_kubelet(call).await? };
        if self.on_host() != on_host {
            return Err(Failure::Lost("another source was chosen during the call".to_owned()));
        }
        Ok(Reply { connection: self.number(reply.connection), ..reply })
    }

    fn connections(&self) -> u64 {
        self.number(if self.on_host() { self.host.connections() } else { self.kubelet.connections() })
    }

    fn server(&self) -> Option<Arc<str>> {
        if self.on_host() { None } else { self.kubelet.server() }
    }

    fn drop_if_replaced(&self) -> bool {
        self.kubelet.drop_if_replaced() && !self.on_host()
    }

    async fn closed(&self) {
        if self.on_host() { self.host.closed().await } else { self.kubelet.closed().await }
    }

    fn due(&self) -> Option<Instant> {
        let state = self.state.borrow();
        let (on_host, trouble, confirmed) = (state.on_host, state.trouble, state.confirmed);
        drop(state);
        match (self.board.wish(), on_host) {
            (Wish::Auto, true) => confirmed.then(Instant::now),
            (Wish::Auto, false) => trouble.filter(|_| self.can_stand_in()).map(|since| since + self.config.after),
            (Wish::Kubelet, true) => Some(Instant::now()),
            (Wish::Host, false) => self.can_stand_in().then(Instant::now),
            (Wish::Kubelet, false) | (Wish::Host, true) => None,
        }
    }

    fn switch(&self) -> bool {
        let now = Instant::now();
        if !self.wants_switch(now) {
            return false;
        }
        let wish = self.board.wish();
        let mut state = self.state.borrow_mut();
        state.on_host = !state.on_host;
        state.switches += 1;
        state.confirmed = false;
        if state.on_host {
            let again = wish == Wish::Auto && state.back.is_some_and(|back| now.saturating_duration_since(back) < FLAPPING);
            state.hold = if again { (state.hold * 2).min(LONGEST_HOLD) } else { HOLD };
            let unanswered = state.trouble.map(|since| now.saturating_duration_since(since));
            tracing::warn!(
                wish = wish.name(),
                ?unanswered,
                "failover: the host answers in the kubelet's place, with the devices that the kubelet told last"
            );
            if !std::mem::replace(&mut state.probing, true) {
                tokio::task::spawn_local(self.clone().probe());
            }
        } else {
            state.back = Some(now);
            state.trouble = None;
            state.unknown = None;
            tracing::info!(wish = wish.name(), "failback: the kubelet is the source again");
        }
        true
    }

    async fn stirred(&self) {
        self.board.stirred().await;
    }

    fn remember(&self, call: Call<'_>, message: Bytes) {
        if self.source() != answer::Source::Kubelet {
            return;
        }
        let last = &mut self.state.borrow_mut().last;
        match call {
            Call::List => last.list = Some(message),
            Call::Allocatable => last.allocatable = Some(message),
            Call::AlphaList => last.alpha = Some(message),
            Call::Get { .. } => {}
        }
    }

    fn unknown(&self) -> Option<Arc<HashSet<PodName>>> {
        self.state.borrow().unknown.clone()
    }
}

impl<K, H> Failover<K, H> {
    /// A number that no connection of another time has: after a switch the other one's words are completed by what was published, as
    /// after a restart.
    fn number(&self, connection: u64) -> u64 {
        (self.state.borrow().switches << 32) + connection
    }
}
