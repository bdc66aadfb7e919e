//! `check`: whether the kubelet and the host agree on who has what.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};
use tonic::metadata::MetadataMap;

use super::ask::{Ask, failed};
use super::fault::Fault;
use super::output::{print, remark};
use super::table::{render, shown};
use crate::client::{CallError, Connection, SocketPath, method};
use crate::config::setting;
use crate::cpuset::CpuSet;
use crate::drift::{Confirmation, Finding, Told, compare};
use crate::grpc::Code;
use crate::kubepods::Kubepods;
use crate::source::Host;
use crate::source::host::{self, View};

/// Between two looks at what may be drift.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// After so long no further finding is waited for.
const LONGEST: Duration = Duration::from_secs(30);

/// Compare what the kubelet tells with what the host has, container by container
///
/// The kubelet's side is asked from a podresources socket, the host's is read from cgroups and sysfs here: run it on the node, as root.
/// Nothing is changed. What seems to be drift is looked at again, for 4 seconds at least and 11 where the kubelet itself corrects it
/// within 10, so that a pod that starts or ends is none. Exit code 0: they agree; 1: they do not.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// The one check that there is so far; the flag may be left out
    #[arg(long)]
    drift: bool,
    /// The socket to ask, a path or `unix:///path`; without it the proxy's own, and where nobody serves that, the kubelet's
    #[arg(long, value_name = "PATH", env = "PODRESOURCES_PROXY_SOCKET", hide_env_values = true)]
    socket: Option<SocketPath>,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "10s", env = "PODRESOURCES_PROXY_TIMEOUT", hide_env_values = true,
        value_parser = super::ask::timeout)]
    timeout: Duration,
    /// How long a disagreement must last, in place of 4s and 11s
    #[arg(long, value_name = "TIME", value_parser = super::ask::timeout)]
    confirm: Option<Duration>,
    /// Where the cgroup file systems are mounted
    #[arg(long, value_name = "DIR", default_value = setting::CGROUP_ROOT.default_text(), env = "PODRESOURCES_PROXY_CGROUP_ROOT",
        hide_env_values = true)]
    cgroup_root: PathBuf,
    /// The kubelet's directory of pod logs
    #[arg(long, value_name = "DIR", default_value = setting::POD_LOGS_DIR.default_text(), env = "PODRESOURCES_PROXY_POD_LOGS_DIR",
        hide_env_values = true)]
    pod_logs_dir: PathBuf,
    /// Where container runtimes keep their bundles, separated by commas
    #[arg(long, value_name = "DIRS", default_value = setting::BUNDLE_DIRS.default_text(), env = "PODRESOURCES_PROXY_BUNDLE_DIRS",
        hide_env_values = true, value_delimiter = ',')]
    bundle_dirs: Vec<PathBuf>,
    /// The kubelet's configuration file, for the CPUs that it reserves
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/var/lib/kubelet/config.yaml",
        env = "PODRESOURCES_PROXY_KUBELET_CONFIG",
        hide_env_values = true
    )]
    kubelet_config: PathBuf,
    /// CPUs that no pod can have alone, in place of what that file says
    #[arg(long, value_name = "CPUS", env = "PODRESOURCES_PROXY_RESERVED_CPUS", hide_env_values = true, value_parser = CpuSet::parse)]
    reserved_cpus: Option<CpuSet>,
    /// How to print the findings
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
}

/// `-o`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// Columns for people
    #[default]
    Table,
    /// One object
    Json,
}

/// All that was found.
#[derive(Debug, Serialize)]
struct Report {
    /// What they disagree on.
    drift: Vec<Finding>,
    compared: Compared,
}

/// What there was to be compared.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Compared {
    pods: usize,
    containers: usize,
    /// Containers in the cgroups that no bundle names: nothing is said of them.
    unnamed_containers: usize,
}

pub(super) fn run(args: &Args) -> Result<(), Fault> {
    let kubepods = Kubepods { cgroup_root: args.cgroup_root.clone(), pod_logs: args.pod_logs_dir.clone() };
    let host = Host::new(host::Config {
        kubepods: kubepods.clone(),
        bundles: args.bundle_dirs.clone(),
        sys: "/sys".into(),
        proc: "/proc".into(),
        cdi: Vec::new(),
        kubelet_config: args.kubelet_config.clone(),
        reserved: args.reserved_cpus.clone(),
    });
    let ask = Ask::plain(args.socket.clone(), args.timeout, args.output == Output::Table);
    let report = ask.with(async |connection| looks(args, connection, &host, &kubepods).await)?;
    args.show(&report)?;
    if report.drift.is_empty() { Ok(()) } else { Err(Fault::Drift) }
}

/// Looks until all that was found at first has lasted long enough, or is no more.
async fn looks(args: &Args, connection: &Connection, host: &Host, kubepods: &Kubepods) -> Result<Report, Fault> {
    let mut confirmation = Confirmation::with_patience(args.confirm);
    let began = Instant::now();
    loop {
        let (findings, compared) = look(args, connection, host, kubepods).await?;
        // Its first moment is its last: what was not there yet when it was looked at has not lasted.
        let now = Instant::now();
        confirmation.look(now, findings);
        let Some(due) = confirmation.due().filter(|due| *due <= began + args.confirm.unwrap_or_default().max(LONGEST)) else {
            return Ok(Report { drift: confirmation.confirmed(), compared });
        };
        sleep_until(due.min(now + LOOK_EVERY)).await;
    }
}

async fn look(args: &Args, connection: &Connection, host: &Host, kubepods: &Kubepods) -> Result<(Vec<Finding>, Compared), Fault> {
    let (metadata, list, _) = connection.list(args.timeout).await.map_err(failed(method::LIST))?.into_parts();
    is_the_kubelets(&metadata)?;
    let allocatable = match connection.allocatable(args.timeout).await {
        Ok(reply) => Some(reply.into_inner()),
        // A kubelet without it, or with the feature off.
        Err(CallError::Status(status)) if matches!(status.code, Code::Unimplemented | Code::Unknown) => None,
        Err(error) => return Err(failed(method::ALLOCATABLE)(error)),
    };
    let told = Told::new(list, allocatable.as_ref());
    let view = host.look(true).map_err(|error| Fault::Failed(Box::new(error)))?;
    if view.pods.roots.is_empty() {
        let root = kubepods.cgroup_root.display();
        return Err(Fault::Failed(
            format!("no kubepods cgroup below {root}: there is nothing to compare with; see --cgroup-root").into(),
        ));
    }
    let compared = Compared::of(&told, &view);
    if compared.containers > 0 && compared.unnamed_containers == compared.containers {
        let why = "none of the containers' bundles can be read: run as root, and see --bundle-dirs";
        return Err(Fault::Failed(why.into()));
    }
    Ok((compare(&told, &view, &kubepods.names()), compared))
}

/// To compare the host with itself would find nothing, and with what the kubelet said once, something always.
fn is_the_kubelets(metadata: &MetadataMap) -> Result<(), Fault> {
    let is = |key: &str, value: &str| metadata.get(key).is_some_and(|found| found == value);
    if is("podresources-source", "host") {
        return Err(Fault::NoKubelet("the answer is the host's own: there is no kubelet to compare it with".into()));
    }
    if is("podresources-stale", "true") {
        return Err(Fault::NoKubelet(
            "the kubelet cannot be reached, and what it said last cannot be compared with the host now".into(),
        ));
    }
    Ok(())
}

// === impl Compared ===

impl Compared {
    fn of(told: &Told, view: &View) -> Self {
        let containers = || view.pods.pods.iter().flat_map(|pod| &pod.containers);
        let unnamed_containers = containers().filter(|container| container.name.is_none()).count();
        Self { pods: told.pods.len(), containers: containers().count(), unnamed_containers }
    }
}

// === impl Args ===

impl Args {
    fn show(&self, report: &Report) -> Result<(), Fault> {
        let Compared { pods, containers, unnamed_containers } = report.compared;
        match self.output {
            Output::Json => {
                let json = serde_json::to_string_pretty(report).map_err(|error| Fault::Failed(Box::new(error)))?;
                print(&(json + "\n"))
            }
            Output::Table => {
                if unnamed_containers > 0 {
                    remark(&format!("{unnamed_containers} containers have no name that can be read; nothing is said of them."));
                }
                if report.drift.is_empty() {
                    return print(&format!("No drift: {pods} pods, {containers} containers.\n"));
                }
                print(&table(&report.drift))
            }
        }
    }
}

fn table(drift: &[Finding]) -> String {
    let row = |finding: &Finding| vec![finding.kind.name().to_owned(), shown(&finding.whose()), shown(&finding.detail)];
    render(vec!["DRIFT", "OF", "WHAT EACH SIDE SAYS"], drift.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drift::Kind;

    #[test]
    fn findings_are_a_table_with_a_line_each() {
        let finding = |kind, pod: Option<&str>, cgroup: Option<&str>, detail: &str| Finding {
            kind,
            namespace: pod.map(|_| "default".into()),
            pod: pod.map(str::to_owned),
            container: pod.map(|_| "main".into()),
            cgroup: cgroup.map(str::to_owned),
            detail: detail.into(),
        };
        let drift = [
            finding(Kind::CpusNotInCpuset, Some("a"), Some("kubepods/a/1"), "told 1; its cpuset is 0"),
            finding(Kind::CgroupWithoutPod, None, Some("kubepods/b"), "left over"),
            finding(Kind::OnlineCpus, None, None, "CPUs 3 are offline"),
        ];
        insta::assert_snapshot!(table(&drift), @"
        DRIFT               OF              WHAT EACH SIDE SAYS
        cpus_not_in_cpuset  default/a/main  told 1; its cpuset is 0
        cgroup_without_pod  kubepods/b      left over
        online_cpus         -               CPUs 3 are offline
        ");
    }

    #[test]
    fn only_the_kubelets_own_and_fresh_words_are_compared() {
        let with = |key: &'static str, value: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert(key, value.parse().unwrap());
            is_the_kubelets(&metadata)
        };
        assert!(is_the_kubelets(&MetadataMap::new()).is_ok(), "the kubelet's own socket");
        assert!(with("podresources-source", "kubelet").is_ok());
        assert!(with("podresources-source", "host").is_err());
        assert!(with("podresources-stale", "true").is_err());
    }
}
