//! A stream of our own making, over a real socket.

use std::pin::Pin;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::Response;
use tonic::transport::Server;

use super::*;
use crate::change::Sources;
use crate::proto::v1alpha1::pods_server::{Pods, PodsServer};

type Events = mpsc::Sender<Result<WatchPodsEvent, Status>>;

/// A kubelet that says what the test has it say: each stream goes to the test, or is refused.
struct Kubelet {
    streams: mpsc::Sender<Events>,
    refuse: Arc<Mutex<Option<Status>>>,
}

#[tonic::async_trait]
impl Pods for Kubelet {
    type WatchPodsStream = Pin<Box<dyn tokio_stream::Stream<Item = Result<WatchPodsEvent, Status>> + Send>>;

    async fn watch_pods(&self, _: Request<WatchPodsRequest>) -> Result<Response<Self::WatchPodsStream>, Status> {
        if let Some(status) = self.refuse.lock().unwrap().clone() {
            return Err(status);
        }
        let (events, receive) = mpsc::channel(16);
        self.streams.send(events).await.unwrap();
        Ok(Response::new(Box::pin(ReceiverStream::new(receive))))
    }
}

struct Node {
    _dir: tempfile::TempDir,
    streams: mpsc::Receiver<Events>,
    refuse: Arc<Mutex<Option<Status>>>,
    sources: Sources,
    epoch: Arc<Epoch>,
}

impl Node {
    fn new(refuse: Option<Status>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("pods-api")).unwrap();
        let listener = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        let (send, streams) = mpsc::channel(1);
        let refuse = Arc::new(Mutex::new(refuse));
        let kubelet = PodsServer::new(Kubelet { streams: send, refuse: refuse.clone() });
        tokio::spawn(Server::builder().add_service(kubelet).serve_with_incoming(UnixListenerStream::new(listener)));
        let source: Arc<dyn Source> = Arc::new(PodsApi::new(dir.path()));
        let sources = Sources::new(vec![source]);
        let epoch = sources.epoch();
        sources.mend(&epoch);
        Self { _dir: dir, streams, refuse, sources, epoch }
    }

    fn part(&self) -> PartReport {
        self.sources.report()[0].parts[0].clone()
    }

    /// Waits for something that the source's own thread does.
    async fn until(&self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let wait = async {
            while !done(self) {
                sleep(Duration::from_millis(2)).await;
            }
        };
        let timeout = tokio::time::timeout(Duration::from_secs(30), wait).await;
        assert!(timeout.is_ok(), "{what}: {:?}, epoch {}", self.part(), self.epoch.now());
    }

    async fn say(&self, events: &Events, kind: EventType) {
        events.send(Ok(WatchPodsEvent { r#type: kind.into() })).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_added_modified_and_deleted_are_changes_and_the_first_listing_is_one() {
    let mut node = Node::new(None);
    let begun = node.epoch.now();
    let stream = node.streams.recv().await.unwrap();
    for _ in 0..5 {
        node.say(&stream, EventType::Added).await;
    }
    node.say(&stream, EventType::InitialSyncComplete).await;
    node.until("attached", |node| node.part().state == State::Attached && node.epoch.now() > begun).await;
    assert_eq!((node.epoch.now(), node.part().events), (begun + 1, 0));
    for (at, kind) in [EventType::Added, EventType::Modified, EventType::Deleted].into_iter().enumerate() {
        node.say(&stream, kind).await;
        let counted = at as u64 + 1;
        node.until("counted", |node| node.epoch.now() == begun + 1 + counted && node.part().events == counted).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_ends_is_a_loss_that_counts_and_another_is_opened() {
    let mut node = Node::new(None);
    let stream = node.streams.recv().await.unwrap();
    node.say(&stream, EventType::InitialSyncComplete).await;
    node.until("attached", |node| node.part().state == State::Attached).await;
    let before = node.epoch.now();
    drop(stream);
    node.until("lost", |node| node.part().losses == 1 && node.epoch.now() > before).await;
    assert!(matches!(node.part().state, State::Lost { .. }), "{:?}", node.part());
    let lost = node.epoch.now();
    let stream = node.streams.recv().await.unwrap();
    node.say(&stream, EventType::InitialSyncComplete).await;
    node.until("attached again", |node| node.part().state == State::Attached && node.epoch.now() > lost).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kubelet_is_settled_from_the_end_of_its_first_listing_until_the_stream_ends() {
    let mut node = Node::new(Some(Status::failed_precondition("Kubelet is initializing")));
    let settled = node.sources.settled().unwrap();
    node.until("refused", |node| node.part().state.to_string().contains("initializing")).await;
    assert_eq!(*settled.borrow(), None);
    assert_eq!(node.part().losses, 0, "nothing was had that could be lost");
    *node.refuse.lock().unwrap() = None;
    let stream = node.streams.recv().await.unwrap();
    node.say(&stream, EventType::Added).await;
    assert_eq!(*settled.borrow(), None);
    node.say(&stream, EventType::InitialSyncComplete).await;
    node.until("settled", |_| settled.borrow().is_some_and(|settled| settled.opened <= settled.at)).await;
    drop(stream);
    node.until("not any more", |_| settled.borrow().is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_without_the_api_is_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let source: Arc<dyn Source> = Arc::new(PodsApi::new(dir.path()));
    let sources = Sources::new(vec![source]);
    sources.mend(&sources.epoch());
    let told = async {
        while !sources.report()[0].parts[0].state.to_string().contains("Kubernetes 1.37") {
            sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), told).await.unwrap();
}
