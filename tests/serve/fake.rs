//! Made-up answers, and servers that give them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use podresources_proxy::answer::{Answer, Answers, Ask, Freshness, Source, Terms, Wait, Who};
use podresources_proxy::grpc::{Code, Status, prefix};
use podresources_proxy::serve::{Config, Door, Limits, Server, Serving, ServingConfig, SocketConfig};
use tempfile::TempDir;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// The instance that [`Running`] servers give out.
pub(crate) const INSTANCE: u32 = 0x00c0_ffee;

/// Answers as told, and remembers what it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Fake {
    /// What is answered.
    pub(crate) reply: Result<Bytes, Status>,
    pub(crate) stale: bool,
    /// Where set, each answer waits for a permit.
    gate: Option<Arc<Semaphore>>,
    pub(crate) asked: Arc<Mutex<Vec<(Ask, Terms)>>>,
    waiting: Arc<AtomicUsize>,
    patience: Arc<Mutex<Option<Duration>>>,
}

/// A server at work in a directory of its own.
pub(crate) struct Running {
    _directory: TempDir,
    pub(crate) serving: Serving,
    pub(crate) stop: CancellationToken,
}

// === impl Fake ===

impl Fake {
    pub(crate) fn replying(message: &[u8]) -> Self {
        Self {
            reply: Ok(framed(message)),
            stale: false,
            gate: None,
            asked: Arc::default(),
            waiting: Arc::default(),
            patience: Arc::default(),
        }
    }

    pub(crate) fn failing(code: Code, message: &str) -> Self {
        Self { reply: Err(Status::new(code, message.to_owned())), ..Self::replying(b"") }
    }

    /// Answers wait until [`Fake::open`].
    pub(crate) fn gated(self) -> Self {
        Self { gate: Some(Arc::new(Semaphore::new(0))), ..self }
    }

    pub(crate) fn open(&self) {
        self.gate.as_ref().expect("gated").add_permits(1);
    }

    pub(crate) fn last_asked(&self) -> (Ask, Terms) {
        self.asked.lock().unwrap().last().expect("asked").clone()
    }

    /// How many calls are waiting now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    /// How long the last wait was given.
    pub(crate) fn patience(&self) -> Option<Duration> {
        *self.patience.lock().unwrap()
    }

    fn answer(&self) -> Result<Answer, Status> {
        let freshness = Freshness { age: Duration::from_millis(1042), epoch: 7, source: Source::Kubelet, stale: self.stale };
        self.reply.clone().map(|framed| Answer { framed, freshness })
    }
}

impl Answers for Fake {
    fn at_once(&self, ask: &Ask, terms: &Terms) -> Result<Result<Answer, Status>, Wait> {
        self.asked.lock().unwrap().push((ask.clone(), *terms));
        if self.gate.is_some() { Err(Wait { epoch: 8, arrived: Instant::now() }) } else { Ok(self.answer()) }
    }

    async fn wait(&self, _: Ask, _: Terms, _: Who, wait: Wait, deadline: Instant) -> Result<Answer, Status> {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        *self.patience.lock().unwrap() = Some(deadline - wait.arrived);
        self.waiting.fetch_add(1, SeqCst);
        let _waiting = Waiting(&self.waiting);
        match timeout_at(deadline, self.gate.as_ref().expect("gated").acquire()).await {
            Ok(permit) => permit.unwrap().forget(),
            Err(_) => return Err(Status::new(Code::Unavailable, "waited for a gate that nobody opened")),
        }
        self.answer()
    }
}

// === impl Running ===

impl Running {
    pub(crate) fn new(fake: &Fake) -> Self {
        Self::with(fake, |_| {})
    }

    pub(crate) fn with(fake: &Fake, change: impl FnOnce(&mut Config)) -> Self {
        Self::behind(fake, None, change)
    }

    /// A server to which all come by this door.
    pub(crate) fn behind(fake: &Fake, door: Option<Door>, change: impl FnOnce(&mut Config)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = config(directory.path().join("kubelet.sock"));
        change(&mut config);
        let stop = CancellationToken::new();
        let mut bound = Server::bind(config).unwrap();
        if let Some(door) = door {
            bound = bound.behind(door);
        }
        let serving = bound.serve(fake.clone(), stop.clone()).unwrap();
        serving.publish().unwrap();
        Self { _directory: directory, serving, stop }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.serving.path().unwrap().to_owned()
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        self.serving.drained().await;
    }
}

pub(crate) fn config(path: PathBuf) -> Config {
    Config {
        socket: SocketConfig::new(path),
        serving: ServingConfig { threads: None, instance: INSTANCE, limits: Limits::default() },
    }
}

pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut framed = prefix(u32::try_from(message.len()).unwrap()).to_vec();
    framed.extend_from_slice(message);
    framed.into()
}

/// Waits for something that comes by itself, and fails where it does not come within ten seconds.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("this never came: {what}");
}
