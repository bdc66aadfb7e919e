//! The refresher's thread.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::{Config, REFRESHER_BEAT};
use crate::admin::Heartbeat;
use crate::change::{Epoch, KubeletDirs};
use crate::keep::{Keep, Writer};
use crate::refresh::{Channel, Refresher};
use crate::source::Kubelet;
use crate::sys;

/// How often the watched directories are looked at again: one may have been replaced without an event.
const MEND_EVERY: Duration = Duration::from_secs(10);

/// The thread at work.
#[derive(Debug)]
pub(super) struct Refreshing {
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

pub(super) fn start(
    config: &Config,
    channel: Channel,
    keep: Keep,
    epoch: Arc<Epoch>,
    dirs: Arc<KubeletDirs>,
    heartbeat: Heartbeat,
    stop: CancellationToken,
) -> io::Result<Refreshing> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (socket, max_reply) = (config.kubelet.socket.clone(), config.max_reply);
    // Dropped when the thread ends, however it does.
    let (alive, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("refresh".to_owned()).spawn(move || {
        let _alive: oneshot::Sender<()> = alive;
        LocalSet::new().block_on(&runtime, async {
            let Keep { keeper, saved, mut writer, .. } = keep;
            let refresher = Refresher::new(channel, Kubelet::new(socket, max_reply)).keeping(keeper, saved);
            let work = async {
                tokio::join!(refresher.run(), heartbeat.beat(REFRESHER_BEAT / 5), watch(&epoch, &dirs), write(writer.as_mut()));
            };
            let _stopped = stop.run_until_cancelled(work).await;
            if let Some(writer) = &mut writer {
                writer.flush();
            }
        });
    })?;
    Ok(Refreshing { thread, ended })
}

/// Saves what is published, where something is kept.
async fn write(writer: Option<&mut Writer>) {
    if let Some(writer) = writer {
        writer.run().await;
    }
}

/// Wakes the refresher when something stands in the queue, also where no request comes to look.
async fn watch(epoch: &Epoch, dirs: &KubeletDirs) {
    let mut mend = tokio::time::interval(MEND_EVERY);
    let queue = dirs.descriptor().map_err(io::Error::other).and_then(sys::readable);
    let queue = match queue {
        Ok(queue) => queue,
        Err(error) => {
            // Requests look at the queue themselves: nothing goes stale, only later is it known that something changed.
            tracing::error!(%error, "cannot wait for inotify events");
            loop {
                mend.tick().await;
                epoch.now();
                dirs.mend(epoch);
            }
        }
    };
    loop {
        tokio::select! {
            ready = queue.readable() => {
                // Reading the epoch empties the queue.
                epoch.now();
                if let Ok(mut ready) = ready {
                    ready.clear_ready();
                }
            }
            _ = mend.tick() => dirs.mend(epoch),
        }
    }
}

// === impl Refreshing ===

impl Refreshing {
    /// Resolves when the thread has ended.
    pub(super) async fn ended(&mut self) {
        // Nothing is ever sent.
        let _ended = (&mut self.ended).await;
    }

    /// Waits for its end, after the stop.
    pub(super) fn join(self) {
        if self.thread.join().is_err() {
            tracing::error!("the refresher's thread panicked");
        }
    }
}
