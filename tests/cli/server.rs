//! A podresources server for the command to talk to: recorded replies, or one error for everything.

use std::path::{Path, PathBuf};

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use podresources_proxy::proto::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use podresources_proxy::proto::v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, GetPodResourcesRequest, GetPodResourcesResponse,
    ListPodResourcesRequest, ListPodResourcesResponse,
};
use prost::Message;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tonic::{Request, Response, Status};

/// A server on a thread of its own, for as long as the test runs.
pub(crate) struct Server {
    dir: TempDir,
}

#[derive(Clone)]
struct Replies {
    list: ListPodResourcesResponse,
    allocatable: AllocatableResourcesResponse,
    error: Option<Status>,
    stale: bool,
}

// === impl Server ===

impl Server {
    /// Serves `tests/cases/kubelet/list-<case>.hex` and `alloc-<case>.hex`.
    pub(crate) fn of_case(case: &str) -> Self {
        Self::start(Replies::of_case(case))
    }

    /// The same, marked as the proxy marks what it cannot ask for anew.
    pub(crate) fn stale(case: &str) -> Self {
        Self::start(Replies { stale: true, ..Replies::of_case(case) })
    }

    /// The same on a node with these allocatable CPUs.
    #[cfg(feature = "server")]
    pub(crate) fn with_cpus(case: &str, cpus: Vec<i64>) -> Self {
        let mut replies = Replies::of_case(case);
        replies.allocatable.cpu_ids = cpus;
        Self::start(replies)
    }

    /// Serves a node without pods.
    pub(crate) fn empty() -> Self {
        Self::start(Replies::empty(None))
    }

    /// Answers everything with this.
    pub(crate) fn failing(error: Status) -> Self {
        Self::start(Replies::empty(Some(error)))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("kubelet.sock")
    }

    fn start(replies: Replies) -> Self {
        let server = Self { dir: tempfile::tempdir().unwrap() };
        let listener = std::os::unix::net::UnixListener::bind(server.socket()).unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve(listener, replies));
        });
        server
    }
}

async fn serve(listener: std::os::unix::net::UnixListener, replies: Replies) {
    let listener = UnixListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let service = TowerToHyperService::new(PodResourcesListerServer::new(replies.clone()));
        tokio::spawn(async move {
            let connection =
                hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
            // The command hangs up when it has what it wants.
            let _hung_up = connection.await;
        });
    }
}

// === impl Replies ===

impl Replies {
    fn of_case(case: &str) -> Self {
        Self { list: recorded("list", case), allocatable: recorded("alloc", case), error: None, stale: false }
    }

    fn empty(error: Option<Status>) -> Self {
        Self {
            list: ListPodResourcesResponse::default(),
            allocatable: AllocatableResourcesResponse::default(),
            error,
            stale: false,
        }
    }

    fn reply<T>(&self, reply: T) -> Result<Response<T>, Status> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let mut response = Response::new(reply);
        if self.stale {
            response.metadata_mut().insert("podresources-stale", "true".parse().unwrap());
            response.metadata_mut().insert("podresources-age", "125.250".parse().unwrap());
        }
        Ok(response)
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Replies {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.reply(self.list.clone())
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        self.reply(self.allocatable.clone())
    }

    async fn get(&self, request: Request<GetPodResourcesRequest>) -> Result<Response<GetPodResourcesResponse>, Status> {
        let GetPodResourcesRequest { pod_name, pod_namespace } = request.into_inner();
        let pod = self.list.pod_resources.iter().find(|pod| pod.name == pod_name && pod.namespace == pod_namespace);
        match pod {
            Some(pod) => self.reply(GetPodResourcesResponse { pod_resources: Some(pod.clone()) }),
            None => Err(Status::unknown(format!("pod {pod_name} in namespace {pod_namespace} not found"))),
        }
    }
}

pub(crate) fn recorded<M: Message + Default>(method: &str, case: &str) -> M {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cases/kubelet/{method}-{case}.hex"));
    let hex = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
    M::decode(bytes.as_slice()).unwrap()
}
