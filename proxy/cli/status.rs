//! `status`: how a running proxy is, on one screen.

use std::time::Duration;

use clap::ValueEnum;
use hyper::Method;

use super::fault::Fault;
use super::output::print;
use super::table::{NOTHING, render};
use crate::admin::request;
use crate::admin::status::{ChangeSource, Client, Status};
use crate::client::SocketPath;
use crate::config::setting;

/// Show how a running proxy is: its source, freshness, change sources, snapshot, clients and rights
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Args {
    /// The proxy's admin socket, a path or `unix:///path`
    #[arg(long, value_name = "PATH", env = "PODRESOURCES_PROXY_ADMIN_SOCKET", hide_env_values = true,
        default_value = setting::ADMIN_SOCKET.default_text())]
    admin_socket: SocketPath,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    output: Output,
}

/// `-o`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// One screen for people
    #[default]
    Text,
    /// All that the proxy says, as it says it
    Json,
}

pub(super) fn run(Args { admin_socket, output }: &Args) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Fault::Start)?;
    let reply = runtime.block_on(request(admin_socket.as_path(), Method::GET, "/status", "")).map_err(Fault::Admin)?;
    if !reply.status.is_success() {
        return Err(Fault::Status(format!("{} says {}: {}", admin_socket, reply.status, reply.body.trim())));
    }
    let status: Status = serde_json::from_str(&reply.body)
        .map_err(|error| Fault::Status(format!("{admin_socket} does not speak of a podresources-proxy: {error}")))?;
    match output {
        Output::Text => print(&screen(&status)),
        Output::Json => print(&format!("{}\n", reply.body.trim_end())),
    }
}

/// Everything that matters, in sections of two columns.
fn screen(status: &Status) -> String {
    let rows = [
        ("proxy", proxy(status)),
        ("ready", ready(status)),
        ("source", source(status)),
        ("host", host(status)),
        ("drift", drift(status)),
        ("freshness", freshness(status)),
        ("changes", changes(status)),
        ("snapshot", snapshot(status)),
        ("saved", saved(status)),
        ("upstream", upstream(status)),
        ("clients", clients(status)),
        ("rules", rules(status)),
        ("rights", rights(status)),
    ];
    let mut lines = Vec::new();
    for (section, said) in rows {
        let begins =
            said.into_iter().enumerate().map(|(at, line)| vec![if at == 0 { section.to_owned() } else { String::new() }, line]);
        lines.extend(begins);
    }
    // The table's header would be the first section's line: there is none, so that goes on top.
    let first = if lines.is_empty() { Vec::new() } else { lines.remove(0) };
    render(first, lines.into_iter())
}

fn proxy(status: &Status) -> Vec<String> {
    let mode = if status.mode.is_empty() { String::new() } else { format!(", mode {}", status.mode) };
    vec![format!("{}, up {}{mode}", or_nothing(&status.version), seconds(status.uptime_s))]
}

fn ready(status: &Status) -> Vec<String> {
    let readiness = &status.readiness;
    let mut lines = vec![if readiness.ready { "yes".to_owned() } else { "no".to_owned() }];
    lines.extend(readiness.waiting_for.iter().map(|waiting| format!("waits for {waiting}")));
    lines.extend(readiness.notes.iter().cloned());
    lines
}

fn source(status: &Status) -> Vec<String> {
    let source = &status.source;
    let since = source.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    let reach = if source.reachable { "reachable" } else { "NOT reachable" };
    let mut lines = vec![if source.kind == "host" {
        "host: cgroups and sysfs; devices only as a kubelet told them last (--failover)".to_owned()
    } else {
        format!("{} at {}, {reach}{since}", or_nothing(&source.kind), or_nothing(&source.socket))
    }];
    lines.extend(source.answers.iter().map(|answers| format!("answers {answers}")));
    lines.extend(source.last_error.iter().map(|error| format!("last error: {error}")));
    lines
}

/// Nothing where the host is not asked.
fn host(status: &Status) -> Vec<String> {
    let Some(host) = &status.host else { return Vec::new() };
    let roots = if host.kubepods.is_empty() { "no kubepods cgroup".to_owned() } else { host.kubepods.join(", ") };
    let mut lines = vec![format!("{} pods, {} left out; {roots}", host.pods, host.left_out)];
    let isolated = if host.isolated_cpus.is_empty() { String::new() } else { format!(", isolated {}", host.isolated_cpus) };
    lines.push(format!("CPUs online {}{isolated}", or_nothing(&host.online_cpus)));
    lines.extend(host.no_allocatable_cpus.iter().map(|why| format!("no allocatable CPUs: {why}")));
    if !host.cdi_devices.is_empty() {
        lines.push(format!("{} CDI devices, not in answers", host.cdi_devices.len()));
    }
    lines.extend(host.skipped.iter().map(|(reason, count)| format!("passed over: {count} {reason}")));
    lines.extend(host.examples.iter().map(|example| format!("  {example}")));
    lines
}

/// Nothing where the two are not compared.
fn drift(status: &Status) -> Vec<String> {
    let Some(drift) = &status.drift else { return Vec::new() };
    if drift.findings.is_empty() {
        return vec![match drift.comparisons {
            0 => "kubelet and host not compared yet".to_owned(),
            comparisons => format!("none: kubelet and host agree, compared {comparisons} times"),
        }];
    }
    let mut lines = vec![format!("kubelet and host DISAGREE, compared {} times:", drift.comparisons)];
    lines.extend(drift.findings.iter().cloned());
    lines
}

fn freshness(status: &Status) -> Vec<String> {
    let freshness = &status.freshness;
    let age = freshness.age_s.map_or_else(|| "nothing captured yet".to_owned(), |age| format!("captured {} ago", seconds(age)));
    let stale = if freshness.stale { "STALE, " } else { "" };
    vec![format!("{stale}{age}; changes seen: {}, captured: {}", freshness.epoch, freshness.snapshot_epoch)]
}

fn changes(status: &Status) -> Vec<String> {
    let line = |source: &ChangeSource| {
        let losses: u64 = source.parts.iter().map(|part| part.losses).sum();
        let losses = if losses > 0 { format!("; lost {losses} times") } else { String::new() };
        format!("{}: {}, {}{losses}", source.name, source.state, source.detail)
    };
    let lines: Vec<String> = status.change_sources.iter().map(line).collect();
    if lines.is_empty() { vec![NOTHING.to_owned()] } else { lines }
}

fn snapshot(status: &Status) -> Vec<String> {
    let Some(snapshot) = &status.snapshot else { return vec!["none yet".to_owned()] };
    let allocatable = snapshot.allocatable_bytes.map_or_else(|| "not offered".to_owned(), |bytes| format!("{bytes} bytes"));
    let mut lines = vec![format!(
        "{} pods, List {} bytes, Allocatable {allocatable}, digest {}",
        snapshot.pods, snapshot.list_bytes, snapshot.digest
    )];
    if snapshot.saved_earlier {
        lines.push("saved by an earlier instance; the kubelet has not answered this one yet".to_owned());
    }
    if !snapshot.kept_after_restart.is_empty() {
        lines.push(format!("kept over a kubelet restart: {}", snapshot.kept_after_restart.join(", ")));
    }
    lines
}

fn saved(status: &Status) -> Vec<String> {
    let saved = &status.saved;
    let Some(dir) = &saved.dir else { return vec!["nothing (--state-dir is off)".to_owned()] };
    let written = saved.last_written.as_ref().map_or_else(|| "not yet".to_owned(), |at| format!("last at {at}"));
    let mut lines = vec![format!("in {dir}, {written}")];
    lines.extend(saved.last_error.iter().map(|error| format!("NOT saved now: {error}")));
    lines.extend(saved.not_used.iter().map(|why| format!("what an earlier instance left was not used: {why}")));
    lines
}

fn upstream(status: &Status) -> Vec<String> {
    let upstream = &status.upstream;
    vec![
        format!(
            "{} calls, {} refused, {} failed; {} requests wait",
            upstream.calls, upstream.refused, upstream.failed, upstream.waiting
        ),
        format!("budget {}/s, burst {}", upstream.rate, upstream.burst),
    ]
}

fn clients(status: &Status) -> Vec<String> {
    let clients = &status.clients;
    let mut lines =
        vec![format!("{} connected, {} accepted, {} turned away", clients.connections, clients.accepted, clients.refused)];
    if clients.queue_full > 0 {
        let times = clients.queue_full;
        lines.push(format!("the queue of new connections was found full {times} times: somebody dials faster than we accept"));
    }
    lines.extend(clients.requests.iter().filter(|(_, count)| **count > 0).map(|(method, count)| format!("{method}: {count}")));
    if clients.admission.is_empty() {
        return lines;
    }
    let known = if clients.admission == "off" { String::new() } else { format!("; {} known", clients.known) };
    lines.push(format!("admission {}: {} each{known}", clients.admission, clients.limits));
    lines.extend(clients.top.iter().filter(|client| !client.over_limit.is_empty()).map(over_limit));
    lines
}

/// Only what a user has set, and what is wrong with it.
fn rules(status: &Status) -> Vec<String> {
    let rules = &status.rules;
    let mut lines = Vec::new();
    if !rules.classes.is_empty() {
        lines.push(format!("classes in their order: {}", rules.classes.join(", ")));
    }
    if let Some(error) = &rules.error {
        lines.push(format!("the new rules in {} are NOT in force:", or_nothing(rules.file.as_deref().unwrap_or_default())));
        lines.extend(error.lines().map(str::to_owned));
    }
    lines
}

/// One that was refused.
fn over_limit(client: &Client) -> String {
    let Client { client: id, pod, connections, calls, paused, .. } = client;
    let name = pod.as_ref().map_or_else(|| id.clone(), |pod| format!("pod:{pod}"));
    let over: Vec<String> = client.over_limit.iter().map(|(limit, count)| format!("{limit} {count}")).collect();
    let paused = if *paused { ", paused" } else { "" };
    format!("{name}: {connections} connected, {calls} calls, over its limit: {}{paused}", over.join(", "))
}

/// Those that change sources and foreign processes need, by name, and how many more there are.
fn rights(status: &Status) -> Vec<String> {
    const OURS: [&str; 5] = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_ADMIN", "CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"];
    let (ours, others): (Vec<&str>, Vec<&str>) =
        status.rights.capabilities.iter().map(String::as_str).partition(|name| OURS.contains(name));
    let capabilities = match (ours.join(" "), others.len()) {
        (ours, 0) if ours.is_empty() => "no capabilities".to_owned(),
        (ours, 0) => ours,
        (ours, others) if ours.is_empty() => format!("{others} capabilities, none that matters here"),
        (ours, others) => format!("{ours} and {others} more"),
    };
    let rights = &status.rights;
    let dropped = if rights.dropped.is_empty() { String::new() } else { format!(", {} dropped", rights.dropped.len()) };
    let sealed = if rights.no_new_privs { ", no_new_privs" } else { "" };
    let mut lines = vec![format!("uid {}, {capabilities}{dropped}{sealed}", rights.uid)];
    if !rights.missing.is_empty() {
        lines.push(format!("missing: {}", rights.missing.join(" ")));
    }
    lines
}

fn or_nothing(text: &str) -> &str {
    if text.is_empty() { NOTHING } else { text }
}

/// To the tenth below ten seconds, to the second above; a number that is no time reads as nothing.
fn seconds(seconds: f64) -> String {
    let Ok(time) = Duration::try_from_secs_f64(seconds) else { return NOTHING.to_owned() };
    if time < Duration::from_secs(10) {
        format!("{seconds:.1}s")
    } else {
        humantime::format_duration(Duration::from_secs(time.as_secs())).to_string()
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn a_running_proxy_fits_on_one_screen() {
        let status: Status = serde_json::from_str(
            r#"{
            "version": "0.1.0", "instance": "a1", "uptime_s": 93784.6, "mode": "cache",
            "source": {"kind": "kubelet", "socket": "/k.sock", "reachable": false, "since": "2026-12-01T14:40:00.250Z",
                       "answers": "List (Kubernetes 1.37 or later)", "last_error": "nobody listens on /k.sock"},
            "drift": {"comparisons": 3, "findings": ["pod_gone: ns/a: listed; no cgroup"]},
            "freshness": {"epoch": 12, "snapshot_epoch": 11, "age_s": 4.25, "stale": true},
            "change_sources": [{"name": "kubepods", "state": "active", "detail": "cpuset attached", "parts": [{"name": "cpuset", "losses": 2}]}, {"name": "timer", "state": "active", "detail": "10s"}],
            "snapshot": {"pods": 110, "list_bytes": 22000, "allocatable_bytes": null, "digest": "ab12", "kept_after_restart": ["ns/a"], "saved_earlier": true},
            "saved": {"dir": "/state", "last_written": "2026-12-01T14:40:00.250Z", "last_error": "no space", "not_used": "too old"},
            "upstream": {"calls": 7, "refused": 1, "failed": 2, "rate": 20.0, "burst": 4.0, "waiting": 5},
            "clients": {"connections": 3, "accepted": 9, "refused": 0, "requests": {"List": 4, "Get": 2, "other": 0}},
            "rules": {"file": "/c.toml", "classes": ["cni", "others"], "error": "/c.toml:3: a\n/c.toml:4: b"},
            "rights": {"uid": 0, "capabilities": ["CAP_BPF", "CAP_KILL"], "dropped": ["CAP_CHOWN", "CAP_FOWNER"],
                       "missing": ["CAP_PERFMON"], "no_new_privs": true},
            "readiness": {"ready": false, "waiting_for": [{"name": "first capture", "reason": "no socket"}], "notes": ["no hostPID"]}
        }"#,
        )
        .unwrap();
        assert_snapshot!(screen(&status), @"
        proxy      0.1.0, up 1day 2h 3m 4s, mode cache
        ready      no
                   waits for first capture: no socket
                   no hostPID
        source     kubelet at /k.sock, NOT reachable since 2026-12-01T14:40:00.250Z
                   answers List (Kubernetes 1.37 or later)
                   last error: nobody listens on /k.sock
        drift      kubelet and host DISAGREE, compared 3 times:
                   pod_gone: ns/a: listed; no cgroup
        freshness  STALE, captured 4.2s ago; changes seen: 12, captured: 11
        changes    kubepods: active, cpuset attached; lost 2 times
                   timer: active, 10s
        snapshot   110 pods, List 22000 bytes, Allocatable not offered, digest ab12
                   saved by an earlier instance; the kubelet has not answered this one yet
                   kept over a kubelet restart: ns/a
        saved      in /state, last at 2026-12-01T14:40:00.250Z
                   NOT saved now: no space
                   what an earlier instance left was not used: too old
        upstream   7 calls, 1 refused, 2 failed; 5 requests wait
                   budget 20/s, burst 4
        clients    3 connected, 9 accepted, 0 turned away
                   Get: 2
                   List: 4
        rules      classes in their order: cni, others
                   the new rules in /c.toml are NOT in force:
                   /c.toml:3: a
                   /c.toml:4: b
        rights     uid 0, CAP_BPF and 1 more, 2 dropped, no_new_privs
                   missing: CAP_PERFMON
        ");
    }

    #[test]
    fn a_proxy_that_says_nothing_known_still_gives_a_screen() {
        assert_snapshot!(screen(&serde_json::from_str("{\"tides\": 1}").unwrap()), @"
        proxy      -, up 0.0s
        ready      no
        source     - at -, NOT reachable
        freshness  nothing captured yet; changes seen: 0, captured: 0
        changes    -
        snapshot   none yet
        saved      nothing (--state-dir is off)
        upstream   0 calls, 0 refused, 0 failed; 0 requests wait
                   budget 0/s, burst 0
        clients    0 connected, 0 accepted, 0 turned away
        rights     uid 0, no capabilities
        ");
    }
}
