//! The refresher's thread.

use std::io;
use std::thread::JoinHandle;

use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::drift::{self, Drift};
use super::{Config, REFRESHER_BEAT};
use crate::admin::Heartbeat;
use crate::change::Sources;
use crate::config::Source;
use crate::keep::{Keep, Writer};
use crate::refresh::{Channel, Refresher};
use crate::source::failover::Board;
use crate::source::{Chosen, Failover, Host, Kubelet};

/// The thread at work.
#[derive(Debug)]
pub(super) struct Refreshing {
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

/// What the thread works with.
pub(super) struct Work {
    pub(super) host: Host,
    pub(super) board: Board,
    pub(super) drift: Option<(Drift, drift::Check)>,
    pub(super) channel: Channel,
    pub(super) keep: Keep,
    pub(super) heartbeat: Heartbeat,
}

pub(super) fn start(config: &Config, sources: &Sources, work: Work, stop: CancellationToken) -> io::Result<Refreshing> {
    let Work { host, board, drift, channel, keep, heartbeat } = work;
    let settled = sources.settled();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let config = config.clone();
    // Dropped when the thread ends, however it does.
    let (alive, ended) = oneshot::channel();
    let thread = std::thread::Builder::new().name("refresh".to_owned()).spawn(move || {
        let _alive: oneshot::Sender<()> = alive;
        LocalSet::new().block_on(&runtime, async {
            let Keep { keeper, saved, mut writer, .. } = keep;
            let refresh = Box::pin(async {
                let source = chosen(&config, host.clone());
                match config.failover {
                    // The host does not stand in for itself.
                    Some(failover) if config.source != Source::Host => {
                        let source = Failover::new(source, host, failover, board);
                        Refresher::new(channel, source).keeping(keeper, saved).with_settled(settled).run().await;
                    }
                    _ => Refresher::new(channel, source).keeping(keeper, saved).with_settled(settled).run().await,
                }
            });
            let compare = async {
                if let Some((drift, check)) = drift {
                    drift.watch(check).await;
                }
            };
            let work = async {
                tokio::join!(refresh, compare, heartbeat.beat(REFRESHER_BEAT / 5), write(writer.as_mut()));
            };
            let _stopped = stop.run_until_cancelled(work).await;
            if let Some(writer) = &mut writer {
                writer.flush();
            }
        });
    })?;
    Ok(Refreshing { thread, ended })
}

/// The source to ask.
fn chosen(config: &Config, host: Host) -> Chosen {
    let kubelet = Kubelet::new(config.kubelet.socket.clone(), config.max_reply);
    match config.source {
        Source::Kubelet => Chosen::Kubelet(kubelet),
        Source::Host => Chosen::Host(host),
        Source::Auto => {
            let socket_dir = config.kubelet.socket.parent().map(std::path::Path::to_owned);
            Chosen::auto(kubelet, host, socket_dir.into_iter().chain([config.kubelet.root_dir.clone()]).collect())
        }
    }
}

/// Saves what is published, where something is kept.
async fn write(writer: Option<&mut Writer>) {
    if let Some(writer) = writer {
        writer.run().await;
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
