//! A kubelet that answers from the kernel's state, as it is when the call comes.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use podresources_proxy::proto::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use podresources_proxy::proto::v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, GetPodResourcesRequest, GetPodResourcesResponse,
    ListPodResourcesRequest, ListPodResourcesResponse,
};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::state::Seen;

/// Served until dropped.
pub(crate) struct Upstream {
    calls: Arc<AtomicUsize>,
    served: JoinHandle<()>,
}

struct Service {
    seen: Seen,
    calls: Arc<AtomicUsize>,
}

// === impl Upstream ===

impl Upstream {
    pub(crate) fn start(socket: &Path, seen: Seen) -> Self {
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let incoming = UnixListenerStream::new(UnixListener::bind(socket).unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let service = PodResourcesListerServer::new(Service { seen, calls: Arc::clone(&calls) });
        let served = tokio::spawn(async move {
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
        });
        Self { calls, served }
    }

    /// How many Lists it was asked.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.served.abort();
    }
}

#[tonic::async_trait]
impl PodResourcesLister for Service {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(self.seen.list()))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Ok(Response::new(AllocatableResourcesResponse::default()))
    }

    async fn get(&self, _: Request<GetPodResourcesRequest>) -> Result<Response<GetPodResourcesResponse>, Status> {
        Err(Status::unknown("only List is asked here"))
    }
}
