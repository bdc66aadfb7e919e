//! Asking a podresources socket: the flags that all client verbs share, and the connection.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use tonic::metadata::MetadataMap;

use super::fault::Fault;
use super::output::{Output, remark};
use crate::client::{CallError, ConnectError, Connection, Limits, SocketPath};
use crate::config::setting;

/// Which socket, how long, and how to print.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Ask {
    /// The socket to ask, a path or `unix:///path`
    ///
    /// Without it: the proxy's own, /run/podresources-proxy/kubelet.sock, and where nobody serves that, the kubelet's,
    /// /var/lib/kubelet/pod-resources/kubelet.sock.
    #[arg(long, value_name = "PATH", env = "PODRESOURCES_PROXY_SOCKET", hide_env_values = true)]
    socket: Option<SocketPath>,
    /// The API's version
    #[arg(long, value_enum, default_value_t)]
    pub(super) api: Api,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "10s", env = "PODRESOURCES_PROXY_TIMEOUT", hide_env_values = true,
        value_parser = timeout)]
    pub(super) timeout: Duration,
    /// Where the kernel of the asked node tells which CPU is on which NUMA node
    #[arg(long, value_name = "DIR", default_value = "/sys", env = "PODRESOURCES_PROXY_SYSFS", hide_env_values = true)]
    pub(super) sysfs: PathBuf,
    /// How to print the answer
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(super) output: Output,
}

/// `--api`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Api {
    /// Devices, CPUs, memory and claims
    #[default]
    V1,
    /// Devices alone; ended pods too, sidecars never
    #[value(name = "v1alpha1")]
    V1alpha1,
}

// === impl Ask ===

impl Ask {
    /// For a verb with flags of its own.
    #[cfg(feature = "server")]
    pub(super) fn plain(socket: Option<SocketPath>, timeout: Duration, for_people: bool) -> Self {
        let output = if for_people { Output::Table } else { Output::Json };
        Self { socket, api: Api::V1, timeout, sysfs: "/sys".into(), output }
    }

    /// Connects, and runs `call` on the connection.
    pub(super) fn with<T>(&self, call: impl AsyncFnOnce(&Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Fault::Start)?;
        runtime.block_on(async { call(&self.connect().await?).await })
    }

    /// `v1alpha1` has List and nothing else.
    pub(super) fn only_v1(&self, verb: &str) -> Result<(), Fault> {
        match self.api {
            Api::V1 => Ok(()),
            Api::V1alpha1 => Err(Fault::Usage(format!("v1alpha1 has no `{verb}`; leave --api out, or use `list`"))),
        }
    }

    async fn connect(&self) -> Result<Connection, Fault> {
        let limits = Limits { handshake: self.timeout.min(Limits::default().handshake), ..Limits::default() };
        if let Some(socket) = &self.socket {
            return Connection::connect(socket, limits).await.map_err(|error| Fault::Connect(vec![error]));
        }
        let (ours, kubelets) = (setting::LISTEN_SOCKET.default_text(), setting::KUBELET_SOCKET.default_text());
        let absent = match Connection::connect(ours, limits).await {
            Ok(connection) => return Ok(connection),
            Err(error @ (ConnectError::NoSuchFile(_) | ConnectError::Refused(_))) => error,
            Err(error) => return Err(Fault::Connect(vec![error])),
        };
        let connection = Connection::connect(kubelets, limits).await.map_err(|error| Fault::Connect(vec![absent, error]))?;
        if self.output.is_table() {
            remark(&format!("nobody serves {ours}: asked the kubelet at {kubelets}"));
        }
        Ok(connection)
    }
}

/// Says so where the answer is not fresh, on standard error, whatever is printed: a script's log may have it too.
pub(super) fn remark_stale(metadata: &MetadataMap) {
    let text = |key: &str| metadata.get(key).and_then(|value| value.to_str().ok());
    if text("podresources-stale") == Some("true") {
        let seconds = text("podresources-age").and_then(|age| Duration::try_from_secs_f64(age.parse().ok()?).ok());
        let whole = |age: Duration| humantime::format_duration(Duration::from_secs(age.as_secs()));
        let age = seconds.map_or_else(String::new, |age| format!(", {} ago", whole(age)));
        remark(&format!("stale: the kubelet cannot be reached; this is what it said last{age}"));
    }
}

/// A call's error with the method that it belongs to.
pub(super) fn failed(method: &'static str) -> impl Fn(CallError) -> Fault {
    move |source| Fault::Call { method, source }
}

pub(super) fn timeout(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|_| "give a time with a unit, such as 500ms or 10s".to_owned())?;
    if time.is_zero() { Err("it must be more than nothing".into()) } else { Ok(time) }
}
