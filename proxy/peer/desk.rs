//! Has peers resolved off the serving threads.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::client::Peer;
use super::inquiry::Inquiry;
use super::resolver::Resolver;

/// How many peers are resolved at a time, all workers together. A look takes microseconds; only a kernel or a disk that hangs fills this.
const AT_A_TIME: usize = 32;

/// Where a connection asks who its peer is. Clones share their bound.
#[derive(Clone, Debug)]
pub struct Desk {
    resolver: Arc<Resolver>,
    places: Arc<Semaphore>,
}

// === impl Desk ===

impl Desk {
    /// A desk before this resolver.
    pub fn new(resolver: Arc<Resolver>) -> Self {
        Self { resolver, places: Arc::new(Semaphore::new(AT_A_TIME)) }
    }

    /// The resolver behind it.
    pub const fn resolver(&self) -> &Arc<Resolver> {
        &self.resolver
    }

    /// Who connected this socket. The socket is asked at once; the future that tells the answer borrows nothing, and keeps waiting
    /// nobody but those who await it. Needs a tokio runtime.
    pub fn peer(&self, socket: BorrowedFd<'_>) -> impl Future<Output = Peer> + Send + 'static + use<> {
        let inquiry = Inquiry::of(socket);
        let Self { resolver, places } = self.clone();
        async move {
            let uid = inquiry.uid;
            // The semaphore is never closed, and a look never panics; whatever happens, a user is known.
            let Ok(place) = places.acquire_owned().await else { return Peer::of_uid(uid) };
            let look = tokio::task::spawn_blocking(move || {
                let peer = resolver.answer(&inquiry);
                drop(place);
                peer
            });
            look.await.unwrap_or_else(|_| Peer::of_uid(uid))
        }
    }
}
