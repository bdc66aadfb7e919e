//! `run`: the proxy itself. Configuration, log, and then everything else is [`crate::app`]'s.

use std::net::SocketAddr;
use std::time::Duration;

use super::fault::Fault;
use super::logs::{self, Level};
use super::output;
use crate::admin::{self, LogLevel};
use crate::change::Layout;
use crate::config::{self, ChangeSource, Config, Place, Resolved};
use crate::kubepods::Kubepods;
use crate::simulate::{self, Simulator};
use crate::source::{failover, host};
use crate::{admission, app, keep, refresh, serve};

/// Without the timer, nothing is asked for that nothing shows. A clock that adds it up must not overflow.
const NEVER: Duration = Duration::from_hours(365 * 24);

/// Run the proxy in front of the kubelet
///
/// Answers every podresources client on this node from one snapshot, and asks the kubelet only when something changed. Each flag has an
/// environment variable and a key in the configuration file; a flag wins over the environment, that over the file.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    args: config::args::Args,
}

pub(super) fn run(Args { args }: &Args) -> Result<(), Fault> {
    let resolved = config::load(args)?;
    let level = logs::start(&resolved.config.log).map_err(|error| Fault::Failed(error.into()))?;
    for warning in &resolved.warnings {
        tracing::warn!("{warning}");
    }
    start(args, &resolved, &level)
}

/// The one call into the application: blocks until it has drained.
fn start(args: &config::args::Args, resolved: &Resolved, level: &Level) -> Result<(), Fault> {
    let set = level.clone();
    let level = LogLevel::new(resolved.config.log.level.clone(), move |level| set.set(level).map_err(|error| error.to_string()));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| Fault::Failed(error.into()))?;
    runtime.block_on(async {
        if resolved.config.demo {
            let made = Place::of_process().prepare().and_then(|()| std::fs::create_dir_all(&resolved.config.upstream.kubelet_dir));
            made.map_err(|error| Fault::Failed(error.into()))?;
        }
        // Rights are dropped here, and what starts later has none.
        let app = app_config(args, resolved).build().map_err(|error| Fault::Failed(error.into()))?;
        let demo = if resolved.config.demo { Some(demo(&resolved.config).await?) } else { None };
        let next = |admin| {
            if resolved.config.demo {
                next_commands(&resolved.config, admin);
            }
        };
        let ran = app.run(level, next).await;
        if let Some(demo) = demo {
            demo.close().await;
        }
        ran.map_err(|error| Fault::Failed(error.into()))
    })
}

/// A kubelet of our own making behind the proxy.
async fn demo(config: &Config) -> Result<Simulator, Fault> {
    let kubelet = simulate::Config {
        socket: Some(config.upstream.socket.as_path().to_owned()),
        root_dir: Some(config.upstream.kubelet_dir.clone()),
        replace: config.listen.replace,
        churn: 0.2,
        ..simulate::Config::default()
    };
    let pods = kubelet.pods;
    let simulator = Simulator::start(kubelet).await.map_err(|error| Fault::Failed(error.into()))?;
    tracing::info!(pods, "demo: a simulated kubelet stands behind the proxy");
    Ok(simulator)
}

/// What to type now that the demo serves, as it can be typed.
fn next_commands(config: &Config, admin: Option<SocketAddr>) {
    let (program, socket) = (output::program(), config.listen.socket.as_path().display());
    tracing::info!("demo: now type: {program} list --socket {socket}");
    let sysfs = config.upstream.kubelet_dir.join(simulate::SYSFS);
    tracing::info!("demo: or: {program} allocatable --socket {socket} --sysfs {}", sysfs.display());
    if let Some(admin) = &config.admin.socket {
        tracing::info!("demo: or: {program} status --admin-socket {}", admin.as_path().display());
    }
    if let Some(admin) = admin {
        tracing::info!("demo: or: curl http://{admin}/metrics");
    }
}

fn kubepods(upstream: &config::Upstream) -> Kubepods {
    Kubepods { cgroup_root: upstream.cgroup_root.clone(), pod_logs: upstream.pod_logs_dir.clone() }
}

/// What the parts go by.
fn app_config(args: &config::args::Args, resolved: &Resolved) -> app::Config {
    let Config { upstream, listen, clients, admin, .. } = &resolved.config;
    let limits = serve::Limits { grace: listen.grace, connections: listen.max_connections.get(), ..serve::Limits::default() };
    app::Config {
        kubelet: Layout { socket: upstream.socket.as_path().to_owned(), root_dir: upstream.kubelet_dir.clone() },
        change_sources: upstream.change_sources.clone(),
        max_reply: upstream.max_reply,
        source: upstream.source,
        failover: upstream
            .failover
            .then_some(failover::Config { after: upstream.max_stale, partial: upstream.partial_host_answers }),
        drift_check: upstream.drift_check,
        host: host::Config {
            kubepods: kubepods(upstream),
            bundles: upstream.bundle_dirs.clone(),
            sys: "/sys".into(),
            proc: "/proc".into(),
            cdi: vec!["/etc/cdi".into(), "/var/run/cdi".into()],
            kubelet_config: upstream.kubelet_config.clone(),
            reserved: upstream.reserved_cpus.clone(),
        },
        refresh: refresh::Config {
            upstream_rate: upstream.rate,
            upstream_burst: upstream.burst.get(),
            max_stale: upstream.max_stale,
            failover: upstream.failover,
            restart_settle: upstream.restart_settle,
            interval: if upstream.change_sources.contains(&ChangeSource::Timer) { upstream.refresh_interval } else { NEVER },
            kubepods: kubepods(upstream),
        },
        keep: keep::Config {
            dir: upstream.state_dir.clone(),
            upstream: upstream.socket.as_path().to_owned(),
            max_reply: upstream.max_reply,
            max_stale: upstream.max_stale,
        },
        serve: serve::Config {
            socket: serve::SocketConfig {
                path: listen.socket.as_path().to_owned(),
                mode: listen.mode,
                owner: listen.owner,
                group: listen.group,
                replace: listen.replace,
            },
            serving: serve::ServingConfig { threads: listen.threads, instance: rand::random(), limits },
        },
        admission: admission::Config {
            mode: match clients.admission {
                config::Admission::Enforce => admission::Mode::Enforce,
                config::Admission::Observe => admission::Mode::Observe,
                config::Admission::Off => admission::Mode::Off,
            },
            limits: client_limits(clients),
            max_connections: listen.max_connections.get(),
        },
        classes: resolved.config.classes.clone(),
        reload: Some(reload(args, resolved.clone())),
        admin: admin::Config {
            address: admin.address,
            socket: admin.socket.as_ref().map(|socket| socket.as_path().to_owned()),
            replace: listen.replace,
        },
        shown: resolved.to_toml(),
    }
}

/// What each client may have, unless its class says otherwise.
fn client_limits(clients: &config::Clients) -> admission::Limits {
    admission::Limits {
        rate: clients.rate,
        burst: clients.burst.get(),
        connections: clients.connections.get(),
        calls: clients.calls.get(),
        waiting_bytes: clients.waiting_bytes as u64,
        ..admission::Limits::default()
    }
}

/// Reads the rules for clients as this process would have read them at its start. Nothing else of the file is taken while it runs.
fn reload(args: &config::args::Args, started_with: Resolved) -> app::Reload {
    let file = config::file_of(args);
    let args = args.clone();
    let load = move || match config::load(&args) {
        Ok(newer) => Ok(loaded(&started_with.clone().with_rules_of(newer))),
        Err(errors) => Err(errors.to_string()),
    };
    app::Reload { file, load: std::sync::Arc::new(load) }
}

fn loaded(resolved: &Resolved) -> app::Loaded {
    let Config { clients, classes, .. } = &resolved.config;
    let rulebook = app::Rulebook { limits: client_limits(clients), classes: classes.clone() };
    app::Loaded { rulebook, shown: resolved.to_toml() }
}
