//! The command as a user meets it: what it prints, and how it ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[cfg(feature = "server")]
mod check;
mod demo;
mod server;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use assert_cmd::Command;
use insta::assert_snapshot;
use server::Server;
use tonic::Status;

/// The command with nothing of ours in its environment.
fn command(args: &[&str]) -> Command {
    let mut command = Command::from_std(plain(assert_cmd::cargo::cargo_bin("podresources-proxy")));
    command.args(args);
    command
}

/// A program with nothing of ours in its environment.
fn plain(program: PathBuf) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PODRESOURCES_PROXY_")) {
        command.env_remove(name);
    }
    command
}

fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// What was said on standard error, with the temporary directory as DIR.
fn err(output: &Output, dir: &Path) -> String {
    String::from_utf8(output.stderr.clone()).unwrap().replace(dir.to_str().unwrap(), "DIR")
}

/// A client verb against a socket.
fn ask(args: &[&str], socket: &Path) -> Output {
    command(args).arg("--socket").arg(socket).output().unwrap()
}

#[test]
fn list_prints_a_table_and_a_unix_url_names_the_same_socket() {
    let server = Server::of_case("1.36.2-vm-2numa");
    let table = ask(&["list"], &server.socket());
    assert!(table.status.success(), "{table:?}");
    assert_eq!(out(&table).lines().count(), 5);
    assert!(out(&table).starts_with("NAMESPACE "), "{table:?}");
    let url = run(&["list", "--socket", &format!("unix://{}", server.socket().display())]);
    assert_eq!(url.stdout, table.stdout);
    let by_environment = command(&["list"]).env("PODRESOURCES_PROXY_SOCKET", server.socket()).output().unwrap();
    assert_eq!(by_environment.stdout, table.stdout);
}

#[test]
fn json_is_for_jq_and_names_are_for_xargs() {
    let server = Server::of_case("1.36.2-vm-2numa");
    let list: serde_json::Value = serde_json::from_slice(&ask(&["list", "-o", "json"], &server.socket()).stdout).unwrap();
    assert_eq!(list["podResources"][0]["name"], "excl1-node1");
    assert_eq!(list["podResources"][0]["containers"][0]["cpuIds"], serde_json::json!([1]));
    let get = ask(&["get", "default", "excl2-node1", "-o", "json"], &server.socket());
    let get: serde_json::Value = serde_json::from_slice(&get.stdout).unwrap();
    assert_eq!(get["podResources"]["containers"][0]["devices"][0]["deviceIds"], serde_json::json!(["Dev-2"]));
    let names = ask(&["list", "-o", "name"], &server.socket());
    assert_eq!(out(&names), "default/excl1-node1\ndefault/excl2-node1\nkube-system/shared-node1\n");
    assert_eq!(out(&ask(&["allocatable", "-o", "name"], &server.socket())), "cpu\nexample.com/resource\n");
    let node = ask(&["allocatable", "-o", "yaml"], &server.socket());
    assert!(out(&node).starts_with("cpuIds:\n- 1\n- 2\n- 3\n"), "{node:?}");
}

#[test]
fn allocatable_puts_both_calls_together() {
    let server = Server::of_case("1.36.2-vm-2numa");
    let node = ask(&["allocatable", "-o", "wide"], &server.socket());
    assert!(node.status.success(), "{node:?}");
    let (table, devices) = out(&node).split_once("\n\n").unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let line = table.lines().find(|line| line.starts_with("0 ") && line.contains("example.com/resource")).unwrap();
    assert_eq!(words(line), ["0", "example.com/resource", "1", "1", "0"]);
    assert_eq!(words(devices.lines().nth(1).unwrap()), ["0", "example.com/resource", "Dev-1", "default/excl1-node1/main"]);
}

#[test]
fn cpus_stand_under_the_numa_nodes_that_a_sysfs_tells() {
    let server = Server::of_case("1.36.2-vm-2numa");
    let sysfs = tempfile::tempdir().unwrap();
    for (node, list) in [("node0", "0-1\n"), ("node1", "2-3\n")] {
        let node = sysfs.path().join("devices/system/node").join(node);
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join("cpulist"), list).unwrap();
    }
    let node = command(&["allocatable", "--sysfs"]).arg(sysfs.path()).arg("--socket").arg(server.socket()).output().unwrap();
    let cpus: Vec<_> =
        out(&node).lines().filter(|line| line.contains(" cpu ")).map(|line| line.split_whitespace().next()).collect();
    assert_eq!(cpus, [Some("0"), Some("1")]);
}

#[test]
fn a_pod_may_be_named_as_list_prints_it() {
    let server = Server::of_case("1.36.2-vm-2numa");
    let two = ask(&["get", "default", "excl2-node1"], &server.socket());
    assert!(two.status.success() && out(&two).contains("excl2-node1"), "{two:?}");
    assert_eq!(ask(&["get", "default/excl2-node1"], &server.socket()).stdout, two.stdout);
    for bad in [&["get", "default"][..], &["get", "default/"], &["get", "a/b", "c"], &["get", "a/b/c"]] {
        let refused = ask(bad, &server.socket());
        assert_eq!(refused.status.code(), Some(64), "{bad:?}");
        assert_eq!(err(&refused, Path::new("-")), "error: which pod? Give NAMESPACE NAME or NAMESPACE/NAME\n");
    }
}

#[test]
fn a_stale_answer_is_remarked_whatever_is_printed() {
    let server = Server::stale("1.36.2-vm-2numa");
    for verb in [&["list"][..], &["get", "default/excl2-node1"], &["allocatable"]] {
        for output in ["table", "wide", "json", "yaml", "name"] {
            let answer = ask(&[verb, &["-o", output]].concat(), &server.socket());
            assert!(answer.status.success() && !answer.stdout.is_empty(), "{answer:?}");
            let said = err(&answer, Path::new("-"));
            assert_eq!(said, "stale: the kubelet cannot be reached; this is what it said last, 2m 5s ago\n", "{verb:?} {output}");
        }
    }
}

#[test]
fn a_node_without_pods_says_so_to_people_and_nothing_to_scripts() {
    let server = Server::empty();
    let table = ask(&["list"], &server.socket());
    assert_eq!((table.status.code(), out(&table), err(&table, Path::new("-")).as_str()), (Some(0), "", "No pods.\n"));
    let names = ask(&["list", "-o", "name"], &server.socket());
    assert_eq!((names.status.code(), out(&names), err(&names, Path::new("-")).as_str()), (Some(0), "", ""));
}

#[test]
fn a_socket_that_cannot_be_reached_is_69_and_the_text_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("dead")).unwrap());
    let mut said = String::new();
    for name in ["absent", "file", "dead"] {
        let output = ask(&["list"], &at(name));
        assert_eq!(output.status.code(), Some(69), "{name}: {output:?}");
        said += &err(&output, dir.path());
    }
    let status = run(&["status", "--admin-socket", at("absent").to_str().unwrap()]);
    assert_eq!(status.status.code(), Some(69), "{status:?}");
    said += &err(&status, dir.path());
    assert_snapshot!(said, @"
    error: DIR/absent does not exist; is the server running, and is its directory mounted here?
    error: DIR/file is not a socket; give the path of the socket itself
    error: nobody listens on DIR/dead; its server has stopped, or is being restarted
    error: cannot reach the admin socket DIR/absent (is podresources-proxy running, and is this its admin socket?): No such file or directory (os error 2)
    ");
}

#[test]
fn an_error_of_the_server_is_1_with_its_code_and_text() {
    let server = Server::of_case("1.36.2-vm-2numa");
    let unknown = ask(&["get", "default", "nobody"], &server.socket());
    assert_eq!(unknown.status.code(), Some(1));
    assert_snapshot!(err(&unknown, Path::new("-")), @"error: /v1.PodResourcesLister/Get: UNKNOWN (2): pod nobody in namespace default not found");
    let limited = ask(&["list"], &Server::failing(Status::resource_exhausted("rejected by rate limit")).socket());
    assert_eq!(limited.status.code(), Some(1));
    assert_snapshot!(err(&limited, Path::new("-")), @"error: /v1.PodResourcesLister/List: RESOURCE_EXHAUSTED (8): rejected by rate limit");
}

#[test]
fn bad_usage_is_64() {
    for args in [
        &["lisst"][..],
        &["list", "--api", "v2"],
        &["list", "--socket", "tcp://host:1"],
        &["list", "--timeout", "5"],
        &["get", "default"],
        &["get", "default", "pod", "--api", "v1alpha1", "--socket", "/nowhere"],
        &["config", "show", "--max-stale", "5 parsecs"],
        &[],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_configuration_with_a_typo_is_64_and_names_the_line_and_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "[upstream]\nsocet = \"/run/k.sock\"\n").unwrap();
    let check = run(&["config", "check", file.to_str().unwrap()]);
    assert_eq!(check.status.code(), Some(64));
    assert_snapshot!(err(&check, dir.path()), @"error: DIR/config.toml:2: unknown key `upstream.socet`; did you mean `upstream.socket`?");
    let by_flag = run(&["config", "check", "--config", file.to_str().unwrap(), "--max-stale", "soon"]);
    assert_eq!(by_flag.status.code(), Some(64));
    assert_eq!(by_flag.stderr, check.stderr);
    std::fs::write(&file, "").unwrap();
    let flag = run(&["config", "check", file.to_str().unwrap(), "--max-stale", "soon"]);
    assert_eq!(flag.status.code(), Some(64));
    assert_snapshot!(err(&flag, dir.path()), @r#"error: --max-stale: "soon" does not fit `upstream.max_stale`: give a time with a unit, such as 500ms, 10s or 5m"#);
    let absent = run(&["config", "show", "--config", "/nowhere/config.toml"]);
    assert_eq!(absent.status.code(), Some(64));
    assert_snapshot!(err(&absent, dir.path()), @"error: cannot read the configuration file /nowhere/config.toml: No such file or directory (os error 2)");
}

#[test]
fn config_show_prints_what_holds_and_reads_its_own_output() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "[upstream]\nmax_stale = \"3m\"\nburst = 9\n").unwrap();
    let show = command(&["config", "show", "--max-stale", "1m", "--config", file.to_str().unwrap()])
        .env("PODRESOURCES_PROXY_UPSTREAM_BURST", "7")
        .output()
        .unwrap();
    assert!(show.status.success(), "{show:?}");
    let line = |key: &str| {
        let line = out(&show).lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("max_stale"), "max_stale = \"1m\" # --max-stale");
    assert_eq!(line("burst"), "burst = 7 # PODRESOURCES_PROXY_UPSTREAM_BURST");
    std::fs::write(&file, &show.stdout).unwrap();
    let check = run(&["config", "check", file.to_str().unwrap()]);
    assert_eq!((check.status.code(), check.stderr.len()), (Some(0), 0), "{check:?}");
}

#[test]
fn help_and_version_end_well() {
    for args in [&["--help"][..], &["list", "--help"], &["config", "show", "-h"], &["--version"], &["version"]] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let server = Server::of_case("1.36.2-vm-2numa");
    // The pipe has no reader from the start: every write fails.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("podresources-proxy"))
        .args(["list", "-o", "json", "--socket"])
        .arg(server.socket())
        .stdout(Stdio::from(writer))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}
