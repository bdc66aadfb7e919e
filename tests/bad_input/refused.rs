//! What keeps the proxy from starting: usage and configuration end with 64, the machine's refusals with 1.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::Command;

use rustix::process::geteuid;

use crate::harness::{PATIENCE, Place};
use crate::somebody::{as_somebody, wrapped};

/// Runs to the end, which must come by itself with this exit code; what was said, with the place's directory as DIR.
#[track_caller]
fn ends_with(code: i32, place: &Place, command: Command) -> String {
    let output = assert_cmd::Command::from_std(command).timeout(PATIENCE).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap().replace(place.path("").to_str().unwrap(), "DIR/");
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// What `run` says with these flags.
#[track_caller]
fn refusal(code: i32, flags: &[&str]) -> String {
    let place = Place::new();
    ends_with(code, &place, place.run(flags))
}

/// What `run` says with this configuration file.
#[track_caller]
fn misconfigured(file: &str) -> String {
    let place = Place::new();
    fs::write(place.path("config.toml"), file).unwrap();
    ends_with(64, &place, place.run(&[]))
}

// === configuration ===

#[test]
fn a_mistyped_key_is_named_with_its_line_and_the_nearest_one() {
    assert_eq!(
        misconfigured("[listen]\n\n[upstream]\nmax_stal = \"5m\"\n"),
        "error: DIR/config.toml:4: unknown key `upstream.max_stal`; did you mean `upstream.max_stale`?\n"
    );
    assert_eq!(
        misconfigured("[upstrem]\nmax_stale = \"5m\"\n"),
        "error: DIR/config.toml:1: unknown key `upstrem`; did you mean `upstream`?\n"
    );
}

#[test]
fn a_wrong_unit_is_named_with_an_example() {
    assert_eq!(
        misconfigured("[upstream]\nmax_reply = \"64 MeB\"\nmax_stale = \"5 parsecs\"\n"),
        "error: DIR/config.toml:2: \"64 MeB\" does not fit `upstream.max_reply`: give a size with a unit, such as 64MiB\n\
         DIR/config.toml:3: \"5 parsecs\" does not fit `upstream.max_stale`: give a time with a unit, such as 500ms, 10s or 5m\n"
    );
    assert_eq!(
        refusal(64, &["--grace", "5"]),
        "error: --grace: \"5\" does not fit `listen.grace`: give a time with a unit, such as 500ms, 10s or 5m\n"
    );
}

#[test]
fn a_wrong_type_is_named_with_what_belongs_there() {
    let said = misconfigured("[upstream]\nburst = [4]\n");
    assert!(said.starts_with("error: DIR/config.toml:2: `upstream.burst` is a list; it takes "), "{said}");
    let said = misconfigured("[listen]\nreplace = 7\n");
    assert!(said.starts_with("error: DIR/config.toml:2: ") && said.contains("`listen.replace`"), "{said}");
    let said = misconfigured("upstream = \"/run/kubelet.sock\"\n");
    assert!(said.starts_with("error: DIR/config.toml:1: ") && said.contains("`upstream`"), "{said}");
}

#[test]
fn a_file_that_is_no_toml_is_named_with_its_line() {
    let said = misconfigured("[upstream]\nsocket = /run/kubelet.sock\n");
    assert!(said.starts_with("error: DIR/config.toml:2: "), "{said}");
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    let place = Place::new();
    fs::create_dir(place.path("folder")).unwrap();
    for (name, reason) in [("folder", "Is a directory"), ("absent.toml", "No such file or directory")] {
        let said = ends_with(64, &place, place.run(&["--config", place.path(name).to_str().unwrap()]));
        assert!(said.starts_with(&format!("error: cannot read the configuration file DIR/{name}: {reason}")), "{said}");
    }
    fs::write(place.path("config.toml"), b"\xff\xfe").unwrap();
    let said = ends_with(64, &place, place.run(&[]));
    assert!(said.starts_with("error: cannot read the configuration file DIR/config.toml: "), "{said}");
}

#[test]
fn a_file_that_we_may_not_read_is_named_where_a_user_other_than_root_can_be_had() {
    let place = Place::new();
    let file = place.path("config.toml");
    fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
    let mut command = place.run(&[]);
    if geteuid().is_root() {
        command = as_somebody(&place, &command, &[]);
    }
    let said = ends_with(64, &place, command);
    assert!(said.starts_with("error: cannot read the configuration file DIR/config.toml: Permission denied"), "{said}");
}

#[test]
fn a_value_of_the_environment_is_named_by_its_variable() {
    let place = Place::new();
    let mut command = place.run(&[]);
    command.env("PODRESOURCES_PROXY_UPSTREAM_RATE", "often");
    let said = ends_with(64, &place, command);
    assert!(said.starts_with("error: PODRESOURCES_PROXY_UPSTREAM_RATE: \"often\" does not fit `upstream.rate`: "), "{said}");
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let place = Place::new();
    let said = ends_with(64, &place, place.run(&["--listen-socket", place.kubelet().to_str().unwrap()]));
    assert!(said.contains("the proxy would ask itself"), "{said}");
    let said = ends_with(64, &place, place.run(&["--admin-socket", place.path("proxy/admin.sock").to_str().unwrap()]));
    assert!(said.contains("which clients mount; give it a directory of its own"), "{said}");
}

// === usage ===

#[test]
fn an_unknown_flag_is_named_with_the_nearest_one() {
    let said = refusal(64, &["--kubelet-sockt", "/run/k.sock"]);
    assert!(said.contains("unexpected argument '--kubelet-sockt'") && said.contains("'--kubelet-socket'"), "{said}");
}

#[test]
fn a_socket_path_too_long_for_the_kernel_is_refused_whosever_it_is() {
    let long = format!("/run/{}/kubelet.sock", "x".repeat(100));
    for (flag, key) in
        [("--kubelet-socket", "upstream.socket"), ("--listen-socket", "listen.socket"), ("--admin-socket", "admin.socket")]
    {
        let said = refusal(64, &[flag, &long]);
        let expected =
            format!("does not fit `{key}`: {long:?} has 118 bytes, a socket's path can have 107; choose a shorter directory");
        assert!(said.contains(&expected), "{said}");
    }
}

// === the machine ===

#[test]
fn what_is_no_socket_where_ours_should_be_is_left_alone() {
    let place = Place::new();
    fs::create_dir(place.path("proxy")).unwrap();
    fs::write(place.listen(), "precious").unwrap();
    assert_eq!(
        ends_with(1, &place, place.run(&[])),
        "error: DIR/proxy/kubelet.sock is a regular file and not a socket that could be replaced; remove it or choose another path\n"
    );
    assert_eq!(fs::read_to_string(place.listen()).unwrap(), "precious");
}

#[test]
fn a_file_where_the_sockets_directory_should_be_is_named() {
    let place = Place::new();
    fs::write(place.path("proxy"), "").unwrap();
    let said = ends_with(1, &place, place.run(&[]));
    assert!(said.starts_with("error: ") && said.contains("DIR/proxy") && said.contains("directory"), "{said}");
}

#[test]
fn an_admin_address_that_another_holds_is_named_with_the_flag_that_chooses_another() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refusal(1, &["--admin-address", &address]);
    assert!(said.contains(&format!("cannot listen on the admin address {address}")) && said.contains("--admin-address"), "{said}");
}

#[test]
fn a_directory_that_we_may_not_write_to_is_named() {
    let place = Place::new();
    fs::create_dir(place.path("proxy")).unwrap();
    let mut command = place.run(&[]);
    if geteuid().is_root() {
        // Root may write anywhere.
        command = as_somebody(&place, &command, &["admin"]);
    }
    fs::set_permissions(place.path("proxy"), Permissions::from_mode(0o555)).unwrap();
    let said = ends_with(1, &place, command);
    assert!(said.starts_with("error: no permission to bind a socket at DIR/proxy/"), "{said}");
    assert!(said.contains("; run as root or as the owner of the directory"), "{said}");
}

#[test]
fn a_full_and_a_read_only_file_system_are_told_apart() {
    let place = Place::new();
    fs::create_dir(place.path("proxy")).unwrap();
    for (options, expected) in [
        // Its root directory takes the one inode.
        (
            "nr_inodes=1",
            "no space left (No space left on device (os error 28)); free some (bytes or inodes) or choose a path on another",
        ),
        ("ro", "the file system is read-only; mount it read-write or choose another path"),
    ] {
        let inner = place.run(&[]);
        // In a mount namespace of its own, so that nothing is left behind.
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-ec", r#"mount -t tmpfs -o "$0" tmpfs "$1"; shift; exec "$@""#]);
        command.arg(options).arg(place.path("proxy")).arg(inner.get_program());
        let said = ends_with(1, &place, wrapped(command, &inner));
        assert!(said.starts_with("error: cannot bind a socket at DIR/proxy/"), "needs user and mount namespaces: {said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn the_kubelets_own_directory_is_not_made() {
    let place = Place::new();
    let ours = place.path("elsewhere/pod-resources/kubelet.sock");
    let said = ends_with(1, &place, place.run(&["--listen-socket", ours.to_str().unwrap()]));
    assert!(said.contains("is the kubelet's own directory and is never made here: start the kubelet first"), "{said}");
    assert!(!place.path("elsewhere").exists());
}

#[test]
fn a_socket_that_a_stranger_serves_is_not_taken() {
    let place = Place::new();
    fs::create_dir(place.path("proxy")).unwrap();
    let _theirs = UnixListener::bind(place.listen()).unwrap();
    let by = std::process::id();
    assert_eq!(
        ends_with(1, &place, place.run(&[])),
        format!(
            "error: socket DIR/proxy/kubelet.sock is served by a living process (process {by}); stop it, choose another path, or take its \
             place with --replace\n"
        )
    );
    assert!(place.listen().exists());
}
