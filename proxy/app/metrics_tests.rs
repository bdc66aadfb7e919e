//! What a scraper sees, with a real serving stack behind it and a refresher that has not begun.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::admin::Metrics;
use crate::admin::metrics::Format;
use crate::admission::{self, Table};
use crate::app::clients::Admission;
use crate::app::sources::Changes;
use crate::change::{Epoch, Layout, Sources, Watched};
use crate::client::{self, Connection};
use crate::config::ChangeSource;
use crate::kubepods::Kubepods;
use crate::peer::Peer;
use crate::refresh;

/// What a scraper needs of Prometheus text: every sample belongs to the family announced last, and has a number. Returns the families.
fn families(scrape: &str) -> Vec<&str> {
    let mut families: Vec<&str> = Vec::new();
    for line in scrape.lines() {
        if let Some(announced) = line.strip_prefix("# TYPE ") {
            families.push(announced.split_once(' ').unwrap().0);
        } else if !line.starts_with('#') {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert_eq!(series.split('{').next(), families.last().copied(), "{line}");
            assert_eq!(series.contains('{'), series.ends_with('}'), "{line}");
        }
    }
    families.sort_unstable();
    families
}

fn handle() -> (Handle, refresh::Channel) {
    let nowhere = PathBuf::from("/nonexistent");
    let config = refresh::Config {
        upstream_rate: 20.0,
        upstream_burst: 4,
        max_stale: Duration::from_mins(5),
        failover: false,
        restart_settle: Duration::from_mins(1),
        interval: Duration::from_secs(10),
        kubepods: Kubepods { cgroup_root: nowhere.clone(), pod_logs: nowhere },
    };
    refresh::channel(config, Arc::new(Epoch::new(Vec::new())))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_has_every_family_and_what_a_client_did_is_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("kubelet.sock");
    let (handle, _channel) = handle();
    let limits = serve::Limits { connections: 1, ..serve::Limits::default() };
    let serving = serve::ServingConfig { threads: None, instance: 1, limits };
    let bound = serve::Server::bind(serve::Config { socket: serve::SocketConfig::new(&socket), serving }).unwrap();
    // The second call is over its limit.
    let limits = admission::Limits { burst: 1, rate: 0.001, ..admission::Limits::default() };
    let table = Table::new(admission::Config { limits, ..admission::Config::default() });
    let door = serve::Door { table: table.clone(), identify: Arc::new(|_| Peer::of_uid(7)) };
    let stop = CancellationToken::new();
    let mut serving = bound.behind(door).serve(handle.clone(), stop.clone()).unwrap();
    serving.publish().unwrap();
    let stats = serving.stats();

    let connection = Connection::connect(&socket, client::Limits::default()).await.unwrap();
    connection.list(Duration::from_millis(50)).await.unwrap_err();
    assert!(connection.list(Duration::from_secs(10)).await.unwrap_err().to_string().contains("rejected by rate limit"));
    // The client gives up by its own clock; the server counts the call when it has ended there too.
    let ended = async {
        while (0..=16).all(|code| stats.calls(Some(Method::List), Code::from_i32(code)) == 0) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap();
    // One connection too many: closed at once.
    let second = UnixStream::connect(&socket).unwrap();
    assert_eq!(std::io::Read::read(&mut &second, &mut [0]).unwrap(), 0);

    let mut metrics = Metrics::new();
    metrics.register(Box::new(Serving(Arc::clone(&stats))));
    metrics.register(Box::new(Refreshing(handle)));
    let watched = Watched {
        kubelet: Layout { socket: socket.clone(), root_dir: directory.path().to_owned() },
        cgroup_root: directory.path().join("cgroup"),
    };
    let chosen = [ChangeSource::Kubepods, ChangeSource::KubeletDirs, ChangeSource::Timer];
    metrics.register(Box::new(Changes(Sources::open(&chosen, &watched))));
    let nowhere = PathBuf::from("/nonexistent");
    let resolver = Resolver::new(Kubepods { cgroup_root: nowhere.clone(), pod_logs: nowhere }, Vec::new()).unwrap();
    let (client, server) = UnixStream::pair().unwrap();
    resolver.resolve(std::os::fd::AsFd::as_fd(&server));
    drop(client);
    metrics.register(Box::new(Peers(Arc::new(resolver))));
    metrics.register(Box::new(Rules(InForce::new(super::super::Loaded::default(), None, &table))));
    metrics.register(Box::new(Admission(table)));
    metrics.register(Box::new(Keeping(Arc::default())));
    let scrape = metrics.encode(Format::Prometheus).unwrap();
    for line in [
        "connections_open 1",
        "connections_accepted_total 1",
        r#"connections_refused_total{reason="limit"} 1"#,
        r#"connections_refused_total{reason="descriptors"} 0"#,
        "accept_queue 0",
        "accept_queue_full_total 0",
        r#"requests_total{api="v1",method="List",code="OK"} 0"#,
        "requests_in_flight 0",
        "waits_total 1",
        r#"over_limit_total{reason="rate"} 1"#,
        r#"over_limit_total{reason="bytes"} 0"#,
        "client_pauses_total 0",
        "clients 1",
        "clients_paused 0",
        "source_up 0",
        r#"change_source{source="kubelet-dirs",part="device-plugins",state="absent"} 1"#,
        r#"change_source{source="kubelet-dirs",part="device-plugins",state="attached"} 0"#,
        r#"change_events_total{source="kubepods",part="cgroups"} 0"#,
        r#"change_losses_total{source="kubelet-dirs",part="socket"} 0"#,
        r#"peers_total{seen="process"} 1"#,
        r#"rules_reloads_total{result="refused"} 0"#,
        "rules_wrong 0",
        r#"saves_total{what="age"} 0"#,
    ] {
        assert!(scrape.contains(&format!("\npodresources_proxy_{line}\n")), "no {line} in\n{scrape}");
    }
    assert!(!scrape.contains("\npodresources_proxy_snapshot_"), "nothing is captured yet:\n{scrape}");
    let families = families(&scrape);
    insta::assert_snapshot!(families.join("\n"), @r"
    podresources_proxy_accept_queue
    podresources_proxy_accept_queue_full_total
    podresources_proxy_accept_queue_limit
    podresources_proxy_build_info
    podresources_proxy_captures_total
    podresources_proxy_change_events_total
    podresources_proxy_change_losses_total
    podresources_proxy_change_source
    podresources_proxy_client_pauses_total
    podresources_proxy_clients
    podresources_proxy_clients_paused
    podresources_proxy_connections_accepted_total
    podresources_proxy_connections_open
    podresources_proxy_connections_refused_total
    podresources_proxy_epoch
    podresources_proxy_forwarded_gets_total
    podresources_proxy_kubelet_restarts_total
    podresources_proxy_over_limit_total
    podresources_proxy_peers_total
    podresources_proxy_pods_kept_after_restart
    podresources_proxy_reply_bytes_max
    podresources_proxy_requests_in_flight
    podresources_proxy_requests_total
    podresources_proxy_rules_reloads_total
    podresources_proxy_rules_wrong
    podresources_proxy_saves_failed_total
    podresources_proxy_saves_total
    podresources_proxy_snapshot_age_seconds
    podresources_proxy_snapshot_allocatable_bytes
    podresources_proxy_snapshot_epoch
    podresources_proxy_snapshot_list_bytes
    podresources_proxy_snapshot_pods
    podresources_proxy_source
    podresources_proxy_source_switches_total
    podresources_proxy_source_up
    podresources_proxy_upstream_calls_total
    podresources_proxy_upstream_connections_total
    podresources_proxy_upstream_malformed_total
    podresources_proxy_waiting
    podresources_proxy_waits_expired_total
    podresources_proxy_waits_total
    process_cpu_seconds_total
    process_max_fds
    process_open_fds
    process_resident_memory_bytes
    process_start_time_seconds
    process_threads
    process_virtual_memory_bytes
    ");
    let open = metrics.encode(Format::OpenMetrics).unwrap();
    for family in families {
        assert!(open.contains(family), "no {family} in\n{open}");
    }
    stop.cancel();
    serving.drained().await;
}
