//! Precedence, errors, and the rule that every setting can be set in every way.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args as _, Command, FromArgMatches as _};
use insta::assert_snapshot;

use super::args::Args;
use super::environment::{Environment, of_a_service};
use super::file::File;
use super::setting::{self, ALL, Default, Kind};
use super::*;

fn place() -> Place {
    Place { runtime_dir: PathBuf::from("/run/user/7"), state_dir: Some(PathBuf::from("/var/u/state")), is_served: |_| false }
}

fn file(text: &str) -> Result<File, ConfigErrors> {
    File::parse(Path::new("/etc/p.toml"), text)
}

fn env(vars: &[(&str, &str)]) -> Environment {
    vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn typed(args: &[&str]) -> Args {
    let command = Args::augment_args(Command::new("run").no_binary_name(true));
    Args::from_arg_matches(&command.try_get_matches_from(args).unwrap()).unwrap()
}

/// The resolved configuration, or the errors as a user reads them.
fn check(args: &[&str], vars: &[(&str, &str)], text: &str) -> Result<Resolved, String> {
    let file = file(text).map_err(|errors| errors.to_string())?;
    resolve(&typed(args), &env(vars), Some(&file), &place()).map_err(|errors| errors.to_string())
}

fn error(args: &[&str], vars: &[(&str, &str)], text: &str) -> String {
    check(args, vars, text).unwrap_err()
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let stale = |args: &[&str], vars: &[(&str, &str)], text: &str| check(args, vars, text).unwrap().config.upstream.max_stale;
    let (flag, var, line) = (["--max-stale", "1m"], [("PODRESOURCES_PROXY_MAX_STALE", "2m")], "[upstream]\nmax_stale = \"3m\"");
    assert_eq!(stale(&flag, &var, line), Duration::from_mins(1));
    assert_eq!(stale(&[], &var, line), Duration::from_mins(2));
    assert_eq!(stale(&[], &[], line), Duration::from_mins(3));
    assert_eq!(stale(&[], &[], ""), Duration::from_mins(5));
    // Templates leave empty variables behind.
    assert_eq!(stale(&[], &[("PODRESOURCES_PROXY_MAX_STALE", "")], line), Duration::from_mins(3));
}

#[test]
fn every_setting_has_a_flag_a_variable_a_key_and_help_and_each_of_them_works() {
    let sample = |setting: &setting::Setting| match (setting.default, setting.kind) {
        (_, Kind::Switch) => "true",
        (Default::Is(value), _) => value,
        (Default::Unset(_), Kind::Number) => "2",
        (Default::Unset(_), _) if matches!(setting.value, "DIR" | "FILE") => "/elsewhere",
        (Default::Unset(_), _) => "0",
    };
    let came_from = |resolved: Resolved, key: &str| resolved.shown.into_iter().find(|(s, ..)| s.key == key).unwrap().2;
    for setting in ALL {
        let value = sample(setting);
        let flag = check(&[&format!("--{}={value}", setting.flag)], &[], "").unwrap();
        assert_eq!(came_from(flag, setting.key), Origin::Flag(setting.flag));
        let var = check(&[], &[(&setting.env(), value)], "").unwrap();
        assert_eq!(came_from(var, setting.key), Origin::Env(setting.env()));
        let quoted = if setting.kind == Kind::Text { format!("{value:?}") } else { value.to_owned() };
        let line = check(&[], &[], &format!("{} = {quoted}", setting.key)).unwrap();
        assert_eq!(came_from(line, setting.key), Origin::File { path: "/etc/p.toml".into(), line: 1 });

        assert!(setting.help.len() > 10 && !setting.help.ends_with('.'), "{}", setting.key);
        assert!(setting.long_help().contains(&setting.env()) && setting.long_help().contains(setting.key), "{}", setting.key);
        // Kubernetes gives such names to the variables of a Service called podresources-proxy.
        assert!(!of_a_service(&setting.env()), "{}", setting.key);
    }
}

#[test]
fn every_setting_is_read_once() {
    let shown = check(&[], &[], "").unwrap().shown;
    let keys = |mut keys: Vec<&'static str>| {
        keys.sort_unstable();
        keys
    };
    assert_eq!(keys(shown.iter().map(|(setting, ..)| setting.key).collect()), keys(ALL.iter().map(|s| s.key).collect()));
}

#[test]
fn the_kubelets_directory_follows_from_its_socket() {
    let dir = |args: &[&str]| check(args, &[], "").unwrap().config.upstream.kubelet_dir;
    assert_eq!(dir(&[]), Path::new("/var/lib/kubelet"));
    assert_eq!(
        dir(&["--kubelet-socket", "unix:///var/lib/k0s/kubelet/pod-resources/kubelet.sock"]),
        Path::new("/var/lib/k0s/kubelet")
    );
    assert_eq!(dir(&["--kubelet-socket", "/tmp/x/k.sock"]), Path::new("/tmp/x"));
    assert_eq!(dir(&["--kubelet-socket", "/tmp/x/k.sock", "--kubelet-dir", "/y"]), Path::new("/y"));
}

#[test]
fn a_mistyped_file_names_every_line_and_the_nearest_key() {
    assert_snapshot!(error(&[], &[], "\
demoo = true

[upstream]
sokcet = \"/run/k.sock\"
kubelet-socket = \"/run/k.sock\"
max_stale = [1]

[lisen]
mode = \"0660\"

[log]
zzz = 1
"), @"
    /etc/p.toml:1: unknown key `demoo`; did you mean `demo`?
    /etc/p.toml:4: unknown key `upstream.sokcet`; did you mean `upstream.socket`?
    /etc/p.toml:5: unknown key `upstream.kubelet-socket`; did you mean `upstream.socket`?
    /etc/p.toml:6: `upstream.max_stale` is a list; it takes a string
    /etc/p.toml:8: unknown key `lisen`; did you mean `listen`?
    /etc/p.toml:12: unknown key `log.zzz`; `podresources-proxy config show` lists all keys
    ");
    assert_snapshot!(error(&[], &[], "[upstream]\nsocket = /run\n"), @"/etc/p.toml:2: string values must be quoted, expected literal string");
    assert_snapshot!(error(&[], &[], "upstream = 3"), @"/etc/p.toml:1: `upstream` is a single value; it takes a section");
}

#[test]
fn values_that_do_not_fit_say_where_they_stand_and_what_would_be_right() {
    assert_snapshot!(error(
        &["--kubelet-socket", "tcp://host:1", "--max-reply", "lots", "--socket-mode", "0999", "--source", "guess"],
        &[("PODRESOURCES_PROXY_MAX_STALE", "5"), ("PODRESOURCES_PROXY_LOG_LEVEL", "inof"), ("PODRESOURCES_PROXY_REFRESH_INTERVAL", "0s")],
        "[upstream]\nrate = -1\nburst = 0\npod_logs_dir = \"logs\"\n[listen]\ngroup = \"nobody-of-that-name\"\nreplace = 2\n\
         [admin]\naddress = 9510\n[log]\nformat = \"xml\"",
    ), @r#"
    --kubelet-socket: "tcp://host:1" does not fit `upstream.socket`: "tcp://host:1" is not a Unix socket; give an absolute path or unix:///path
    --source: "guess" does not fit `upstream.source`: give auto, kubelet or host
    --max-reply: "lots" does not fit `upstream.max_reply`: give a size with a unit, such as 64MiB
    /etc/p.toml:2: "-1" does not fit `upstream.rate`: give calls a second above zero, such as 20/s
    /etc/p.toml:3: "0" does not fit `upstream.burst`: give a whole number from 1
    PODRESOURCES_PROXY_MAX_STALE: "5" does not fit `upstream.max_stale`: give a time with a unit, such as 500ms, 10s or 5m
    PODRESOURCES_PROXY_REFRESH_INTERVAL: "0s" does not fit `upstream.refresh_interval`: it must be more than nothing
    /etc/p.toml:4: "logs" does not fit `upstream.pod_logs_dir`: give an absolute path
    --socket-mode: "0999" does not fit `listen.mode`: give permission bits in octal, such as 0660
    /etc/p.toml:6: "nobody-of-that-name" does not fit `listen.group`: there is no such group here; give a number if it is known elsewhere only
    /etc/p.toml:7: "2" does not fit `listen.replace`: give true or false
    /etc/p.toml:9: "9510" does not fit `admin.address`: give ADDRESS:PORT, such as 127.0.0.1:9510, or off
    /etc/p.toml:11: "xml" does not fit `log.format`: give text or json
    PODRESOURCES_PROXY_LOG_LEVEL: "inof" does not fit `log.level`: give off, error, warn, info, debug or trace; by module: info,podresources_proxy::refresh=debug
    "#);
}

#[test]
fn change_sources_are_a_list_and_an_unknown_one_is_told_with_its_nearest() {
    use super::ChangeSource::{KubeletDirs, Timer};
    let chosen = |text: &str| check(&["--change-sources", text], &[], "").unwrap().config.upstream.change_sources;
    assert_eq!(chosen("timer"), [Timer]);
    assert_eq!(chosen("timer, kubelet-dirs"), [Timer, KubeletDirs]);
    assert_eq!(check(&[], &[], "").unwrap().config.upstream.change_sources, ChangeSource::ALL);
    insta::assert_snapshot!(error(&["--change-sources", "kubelet-dir,timer"], &[], ""), @r#"--change-sources: "kubelet-dir,timer" does not fit `upstream.change_sources`: there is no change source "kubelet-dir", did you mean kubelet-dirs; there are ebpf, fanotify, kubepods, kubelet-dirs, pods-api, timer"#);
    insta::assert_snapshot!(error(&["--change-sources", ","], &[], ""), @r#"--change-sources: "," does not fit `upstream.change_sources`: give at least one of ebpf, fanotify, kubepods, kubelet-dirs, pods-api, timer"#);
}

#[test]
fn sockets_that_would_meet_are_refused() {
    assert_snapshot!(error(&["--listen-socket", "/var/lib/kubelet/pod-resources/kubelet.sock"], &[], ""), @"`listen.socket` and `upstream.socket` are both /var/lib/kubelet/pod-resources/kubelet.sock: the proxy would ask itself; give it a socket in a directory of its own");
    assert_snapshot!(error(&["--admin-socket", "/run/podresources-proxy/admin.sock"], &[], ""), @"`admin.socket` (/run/podresources-proxy/admin.sock) is in the directory of `listen.socket`, which clients mount; give it a directory of its own");
}

#[test]
fn a_state_directory_that_clients_mount_is_refused() {
    let within = ["--state-dir", "/run/podresources-proxy/state"];
    assert_snapshot!(error(&within, &[], ""), @"`upstream.state_dir` (/run/podresources-proxy/state) is within the directory of `listen.socket`, which clients mount: whoever can write there could give every client a false answer; give it a directory of its own");
    assert_snapshot!(error(&["--state-dir", "state"], &[], ""), @r#"--state-dir: "state" does not fit `upstream.state_dir`: give an absolute path, or off"#);
}

#[test]
fn where_the_snapshot_is_kept_depends_on_the_user_and_can_be_turned_off() {
    let dir = |args: &[&str]| check(args, &[], "").unwrap().config.upstream.state_dir;
    assert_eq!(dir(&[]).as_deref(), Some(Path::new("/var/u/state")));
    assert_eq!(dir(&["--state-dir", "/s"]).as_deref(), Some(Path::new("/s")));
    assert_eq!(dir(&["--state-dir", "off"]), None);
    assert_eq!(dir(&["--demo"]), None);
}

#[test]
fn what_was_asked_for_and_is_unwise_is_taken_with_a_warning() {
    let resolved = check(&["--socket-mode", "0666"], &[("PODRESOURCES_PROXY_MAX_STAEL", "1m")], "").unwrap();
    assert_eq!(resolved.config.listen.mode, 0o666);
    assert_snapshot!(resolved.warnings.join("\n"), @"
    mode 0666 lets every process that reaches /run/podresources-proxy/kubelet.sock call it; some clients refuse such a socket
    the environment variable PODRESOURCES_PROXY_MAX_STAEL means nothing to podresources-proxy; did you mean PODRESOURCES_PROXY_MAX_STALE?
    ");
    let of_kubernetes = [("PODRESOURCES_PROXY_SERVICE_HOST", "10.0.0.1"), ("PODRESOURCES_PROXY_PORT_80_TCP", "tcp://10.0.0.1:80")];
    assert_eq!(check(&[], &of_kubernetes, "").unwrap().warnings, Vec::<String>::new());
}

#[test]
fn off_and_numbers_and_units_are_read() {
    let config = check(
        &["--admin-address", "off", "--admin-socket=off", "--upstream-rate", "7.5", "--max-reply", "16MiB", "--socket-owner", "0"],
        &[("PODRESOURCES_PROXY_REPLACE", "true")],
        "[listen]\nmode = \"640\"\nthreads = 3\ngroup = \"root\"\n[upstream]\nrate = 3",
    )
    .unwrap()
    .config;
    assert_eq!((config.admin.address, config.admin.socket), (None, None));
    assert!((config.upstream.rate - 7.5).abs() < 1e-9);
    assert_eq!(config.upstream.max_reply, 16 << 20);
    assert_eq!((config.listen.owner, config.listen.group, config.listen.mode), (Some(0), Some(0), 0o640));
    assert!(config.listen.replace && config.listen.threads.is_some_and(|threads| threads.get() == 3));
}

#[test]
fn the_demo_keeps_its_sockets_in_the_users_own_directory_unless_they_are_set() {
    let config = check(&["--demo", "--admin-socket", "/a/admin.sock"], &[], "").unwrap().config;
    assert!(config.demo);
    assert_eq!(config.listen.socket.as_path(), Path::new("/run/user/7/podresources-proxy/kubelet.sock"));
    assert_eq!(config.upstream.kubelet_dir, Path::new("/run/user/7/podresources-proxy/demo"));
    assert_eq!(config.admin.socket.unwrap().as_path(), Path::new("/a/admin.sock"));
    assert_eq!(config.admin.address.unwrap().port(), 0, "any free one");
}

#[test]
fn a_second_demo_goes_beside_the_first_unless_it_is_to_replace_it() {
    let place = Place { is_served: |socket| socket.starts_with("/run/user/7/podresources-proxy/demo"), ..place() };
    let listen = |args: &[&str]| {
        let resolved = resolve(&typed(args), &env(&[]), None, &place).unwrap();
        resolved.config.listen.socket.as_path().to_owned()
    };
    assert_eq!(listen(&["--demo"]), Path::new("/run/user/7/podresources-proxy-2/kubelet.sock"));
    assert_eq!(listen(&["--demo", "--replace"]), Path::new("/run/user/7/podresources-proxy/kubelet.sock"));
}

#[test]
fn what_is_shown_is_a_file_that_gives_the_same_configuration_again() {
    let resolved = check(
        &["--socket-group", "0", "--replace"],
        &[("PODRESOURCES_PROXY_GRACE", "2s")],
        "[log]\nlevel = \"warn\"\n[[class]]\nname = \"others\"\ndeny = true",
    )
    .unwrap();
    let toml = resolved.to_toml();
    assert_snapshot!(toml, @r#"
    demo = false                                                     # default

    [upstream]
    socket = "/var/lib/kubelet/pod-resources/kubelet.sock"           # default
    kubelet_dir = "/var/lib/kubelet"                                 # follows from other settings
    source = "auto"                                                  # default
    failover = "off"                                                 # default
    max_reply = "64MiB"                                              # default
    rate = "20/s"                                                    # default
    burst = 4                                                        # default
    max_stale = "5m"                                                 # default
    restart_settle = "60s"                                           # default
    refresh_interval = "10s"                                         # default
    state_dir = "/var/u/state"                                       # default
    change_sources = "ebpf,fanotify,kubepods,kubelet-dirs,pods-api,timer" # default
    pod_logs_dir = "/var/log/pods"                                   # default
    cgroup_root = "/sys/fs/cgroup"                                   # default

    [host]
    bundle_dirs = "/run/containerd/io.containerd.runtime.v2.task/k8s.io,/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io,/run/containers/storage/overlay-containers,/var/lib/containers/storage/overlay-containers" # default
    answers = "whole"                                                # default
    drift_check = "10s"                                              # default
    # reserved_cpus: what the kubelet's configuration reserves       # default
    kubelet_config = "/var/lib/kubelet/config.yaml"                  # follows from other settings

    [listen]
    socket = "/run/podresources-proxy/kubelet.sock"                  # default
    mode = "0660"                                                    # default
    # owner: the process's own user                                  # default
    group = "0"                                                      # --socket-group
    replace = true                                                   # --replace
    grace = "2s"                                                     # PODRESOURCES_PROXY_GRACE
    # threads: one for each CPU that the process may use             # default
    max_connections = 4096                                           # default

    [clients]
    admission = "enforce"                                            # default
    rate = "100/s"                                                   # default
    burst = 100                                                      # default
    connections = 128                                                # default
    calls = 256                                                      # default
    waiting = "16MiB"                                                # default

    [admin]
    address = "127.0.0.1:9510"                                       # default
    socket = "/run/podresources-proxy-admin/admin.sock"              # default

    [log]
    format = "text"                                                  # default
    level = "warn"                                                   # /etc/p.toml:2

    [[class]]
    name = "others"
    deny = true
    "#);
    assert_eq!(check(&[], &[], &toml).unwrap().config, resolved.config);
}

#[test]
fn a_directory_in_a_shared_place_must_be_ours_alone() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let shared = tempfile::tempdir().unwrap();
    let place = |name: &str| Place { runtime_dir: shared.path().join(name), ..place() };
    place("new").prepare().unwrap();
    let mode = std::fs::metadata(shared.path().join("new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    place("new").prepare().unwrap();
    std::fs::set_permissions(shared.path().join("new"), std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = place("new").prepare().unwrap_err().to_string();
    assert!(error.contains("is not a directory that this user alone may write to; set XDG_RUNTIME_DIR"), "{error}");
    symlink("/tmp", shared.path().join("link")).unwrap();
    place("link").prepare().unwrap_err();
}

#[test]
fn of_a_newer_configuration_a_running_process_takes_the_rules_for_clients_and_shows_where_they_came_from() {
    let started = check(&["--client-burst", "7"], &[], "[log]\nlevel = \"warn\"").unwrap();
    let file =
        "[log]\nlevel = \"debug\"\n[clients]\nadmission = \"observe\"\nrate = \"5/s\"\n[[class]]\nname = \"others\"\ndeny = true";
    let newer = check(&["--client-burst", "7"], &[], file).unwrap();
    let taken = started.clone().with_rules_of(newer.clone());
    assert_eq!(
        (taken.config.clients.rate, taken.config.clients.burst.get(), taken.config.clients.admission),
        (5.0, 7, started.config.clients.admission)
    );
    assert_eq!((&taken.config.classes, &taken.config.log), (&newer.config.classes, &started.config.log));
    let toml = taken.to_toml();
    let line = |key: &str| {
        toml.lines().find(|line| line.starts_with(key)).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap()
    };
    assert_eq!(line("rate = \"5"), "rate = \"5/s\" # /etc/p.toml:5");
    assert_eq!(line("admission"), "admission = \"enforce\" # default");
    assert_eq!(line("level"), "level = \"warn\" # /etc/p.toml:2");
    assert_eq!(line("[[class]]"), "[[class]]");
}
