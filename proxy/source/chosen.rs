//! The source that the configuration chooses: the kubelet, the host, or the host until a kubelet comes.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use super::{Call, Failure, Host, Kubelet, Reply, Upstream};
use crate::answer;

/// One source of several. A clone shares everything.
#[derive(Clone, Debug)]
pub enum Chosen {
    /// The kubelet, whether it is there or not.
    Kubelet(Kubelet),
    /// The host.
    Host(Host),
    /// The host on a machine without a kubelet; once there is one, that, for good: it knows the devices.
    UntilKubelet {
        /// In the meantime.
        host: Host,
        /// The kubelet that may come.
        kubelet: Kubelet,
        /// One of these directories is there once a kubelet is.
        dirs: Rc<[PathBuf]>,
        /// It has come.
        come: Rc<Cell<bool>>,
    },
}

// === impl Chosen ===

impl Chosen {
    /// The kubelet if one of its directories is there, else the host until one is.
    #[must_use]
    pub fn auto(kubelet: Kubelet, host: Host, dirs: Vec<PathBuf>) -> Self {
        if dirs.iter().any(|dir| dir.is_dir()) {
            return Self::Kubelet(kubelet);
        }
        tracing::info!(?dirs, "no kubelet's directory is here: the host itself is the source until there is one (--source)");
        Self::UntilKubelet { host, kubelet, dirs: dirs.into(), come: Rc::default() }
    }

    /// Looks whether a kubelet has come.
    fn look(&self) {
        if let Self::UntilKubelet { dirs, come, .. } = self
            && !come.get()
            && let Some(dir) = dirs.iter().find(|dir| dir.is_dir())
        {
            tracing::info!(dir = %dir.display(), "a kubelet has come: it is the source from now on");
            come.set(true);
        }
    }

    /// Connections before the kubelet's first: the host's, so that the kubelet's first is another one.
    fn before(&self) -> u64 {
        match self {
            Self::UntilKubelet { host, .. } => host.connections(),
            Self::Kubelet(_) | Self::Host(_) => 0,
        }
    }

    /// The one in force.
    fn kubelet(&self) -> Result<&Kubelet, &Host> {
        match self {
            Self::Kubelet(kubelet) => Ok(kubelet),
            Self::UntilKubelet { kubelet, come, .. } if come.get() => Ok(kubelet),
            Self::Host(host) | Self::UntilKubelet { host, .. } => Err(host),
        }
    }
}

impl Upstream for Chosen {
    fn source(&self) -> answer::Source {
        match self.kubelet() {
            Ok(kubelet) => kubelet.source(),
            Err(host) => host.source(),
        }
    }

    async fn connect(&self) -> Result<(), Failure> {
        self.look();
        match self.kubelet() {
            Ok(kubelet) => kubelet.connect().await,
            Err(host) => host.connect().await,
        }
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Failure> {
        match self.kubelet() {
            Ok(kubelet) => kubelet.call(call).await.map(|reply| Reply { connection: reply.connection + self.before(), ..reply }),
            Err(host) => host.call(call).await,
        }
    }

    fn connections(&self) -> u64 {
        match self.kubelet() {
            Ok(kubelet) => self.before() + kubelet.connections(),
            Err(host) => host.connections(),
        }
    }

    fn server(&self) -> Option<Arc<str>> {
        self.kubelet().ok().and_then(Upstream::server)
    }

    fn drop_if_replaced(&self) -> bool {
        self.kubelet().is_ok_and(Upstream::drop_if_replaced)
    }

    async fn closed(&self) {
        match self.kubelet() {
            Ok(kubelet) => kubelet.closed().await,
            Err(host) => host.closed().await,
        }
    }
}
