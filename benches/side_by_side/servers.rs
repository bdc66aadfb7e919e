//! What the proxy is held against.

use std::error::Error;
use std::fs;

use podresources_proxy::proto::v1::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use podresources_proxy::proto::v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, GetPodResourcesRequest, GetPodResourcesResponse,
    ListPodResourcesRequest, ListPodResourcesResponse,
};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::load::REQUEST;

/// The least that a server on this runtime can do: reads what comes, and for each request writes so many bytes with one call.
pub(crate) fn echo(socket: &str, bytes: usize) -> Result<(), Box<dyn Error>> {
    current_thread()?.block_on(async {
        let listener = UnixListener::bind(socket)?;
        let reply: std::rc::Rc<[u8]> = vec![0; bytes].into();
        tokio::task::LocalSet::new()
            .run_until(async {
                loop {
                    let (mut stream, _) = listener.accept().await?;
                    let reply = reply.clone();
                    tokio::task::spawn_local(async move {
                        // All requests that have come are read together, and their replies written together, as ours are.
                        let (mut requests, mut replies, mut over) = ([0; 64 * REQUEST], Vec::new(), 0);
                        while let Ok(read @ 1..) = stream.read(&mut requests).await {
                            over += read;
                            replies.clear();
                            for _ in 0..over / REQUEST {
                                replies.extend_from_slice(&reply);
                            }
                            over %= REQUEST;
                            if stream.write_all(&replies).await.is_err() {
                                return;
                            }
                        }
                    });
                }
            })
            .await
    })
}

/// What one writes first: generated service, types in memory, encoded anew for each call.
pub(crate) fn tonic(socket: &str, list: &str) -> Result<(), Box<dyn Error>> {
    let list = ListPodResourcesResponse::decode(fs::read(list)?.as_slice())?;
    current_thread()?.block_on(async {
        let incoming = UnixListenerStream::new(UnixListener::bind(socket)?);
        let service = PodResourcesListerServer::new(Naive { list });
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await.map_err(Into::into)
    })
}

fn current_thread() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

struct Naive {
    list: ListPodResourcesResponse,
}

#[tonic::async_trait]
impl PodResourcesLister for Naive {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        Ok(Response::new(self.list.clone()))
    }

    async fn get_allocatable_resources(
        &self,
        _: Request<AllocatableResourcesRequest>,
    ) -> Result<Response<AllocatableResourcesResponse>, Status> {
        Err(Status::unimplemented("only List is compared"))
    }

    async fn get(&self, _: Request<GetPodResourcesRequest>) -> Result<Response<GetPodResourcesResponse>, Status> {
        Err(Status::unimplemented("only List is compared"))
    }
}
