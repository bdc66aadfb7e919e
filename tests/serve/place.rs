//! The socket's place in the file system: what is there before, what we make, what we leave.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use podresources_proxy::serve::{Bound, Server, SocketError};
use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, LIST};
use crate::fake::{Fake, Running, config, eventually};
use crate::lifecycle::{again, child_path};

fn bind(path: &Path) -> Result<Bound, SocketError> {
    Server::bind(config(path.to_owned()))
}

/// What binding says, where it must not work.
#[track_caller]
fn refusal(path: &Path) -> String {
    bind(path).expect_err("this must not be bound").to_string()
}

fn names(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn a_bound_socket_has_another_name_until_it_is_published_and_is_gone_when_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubelet.sock");
    let bound = bind(&path).unwrap();
    assert!(!path.exists());
    assert_eq!(names(directory.path()).len(), 1);
    let stop = CancellationToken::new();
    let mut serving = bound.serve(Fake::replying(b""), stop.clone()).unwrap();
    serving.publish().unwrap();
    assert_eq!(names(directory.path()), ["kubelet.sock"]);
    stop.cancel();
    serving.drained().await;
    assert_eq!(names(directory.path()), [""; 0]);
    drop(bind(&path).unwrap());
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn the_mode_is_the_one_asked_for_whatever_the_umask() {
    const TEST: &str = "place::the_mode_is_the_one_asked_for_whatever_the_umask";
    if let Some(path) = child_path() {
        for (mask, mode) in [(0o000, 0o660), (0o077, 0o660), (0o777, 0o606)] {
            umask(Mode::from_raw_mode(mask));
            let directory = path.join(format!("{mask:o}"));
            let mut config = config(directory.join("kubelet.sock"));
            config.socket.mode = mode;
            let bound = Server::bind(config).unwrap();
            let temporary = directory.join(&names(&directory)[0]);
            assert_eq!(fs::metadata(&temporary).unwrap().mode() & 0o7777, mode);
            assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, 0o755);
            drop(bound);
        }
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    assert!(again(TEST, directory.path()).status().unwrap().success());
}

#[test]
fn the_socket_is_given_to_the_owner_and_group_asked_for_where_we_may() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path().join("kubelet.sock"));
    (config.socket.owner, config.socket.group) = (Some(12345), Some(23456));
    let bound = Server::bind(config);
    if geteuid().is_root() {
        let _bound = bound.unwrap();
        let made = fs::metadata(directory.path().join(&names(directory.path())[0])).unwrap();
        assert_eq!((made.uid(), made.gid()), (12345, 23456));
    } else {
        let error = bound.unwrap_err().to_string();
        assert!(error.starts_with("no permission to set the owner and group of "), "{error}");
        assert!(error.contains("CAP_CHOWN"), "{error}");
        assert_eq!(names(directory.path()), [""; 0]);
    }
}

#[test]
fn a_missing_directory_is_made_but_never_the_kubelets_own() {
    let directory = tempfile::tempdir().unwrap();
    let ours = directory.path().join("a/b");
    let _bound = bind(&ours.join("kubelet.sock")).unwrap();
    assert_eq!(fs::metadata(&ours).unwrap().mode() & 0o7777, 0o755);
    let kubelets = directory.path().join("pod-resources");
    let error = refusal(&kubelets.join("kubelet.sock"));
    assert!(error.contains("is the kubelet's own directory and is never made here"), "{error}");
    assert!(!kubelets.exists());
    fs::create_dir(&kubelets).unwrap();
    fs::set_permissions(&kubelets, Permissions::from_mode(0o750)).unwrap();
    drop(bind(&kubelets.join("kubelet.sock")).unwrap());
    assert_eq!(fs::metadata(&kubelets).unwrap().mode() & 0o7777, 0o750);
}

#[tokio::test]
async fn a_dead_socket_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubelet.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let stop = CancellationToken::new();
    let serving = bind(&path).unwrap().serve(Fake::replying(b""), stop).unwrap();
    serving.publish().unwrap();
    Client::connect(&path).await.unwrap().ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
}

#[tokio::test]
async fn a_socket_that_somebody_serves_is_not_taken() {
    let server = Running::new(&Fake::replying(b""));
    let error = refusal(&server.path());
    let ours = format!("is served by a living process (process {}); ", std::process::id());
    assert!(error.contains(&ours) && error.contains("--replace"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn a_socket_that_somebody_began_to_serve_since_the_bind_is_not_taken_either() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubelet.sock");
    let stop = CancellationToken::new();
    let serving = bind(&path).unwrap().serve(Fake::replying(b""), stop).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    let error = serving.publish().unwrap_err();
    assert!(matches!(error, SocketError::InUse { .. }), "{error}");
}

#[test]
fn what_is_no_stream_socket_is_named_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("file"), "precious").unwrap();
    fs::create_dir(at("directory")).unwrap();
    symlink("file", at("link")).unwrap();
    let _datagram = UnixDatagram::bind(at("datagram")).unwrap();
    for (name, kind) in [
        ("file", "a regular file"),
        ("directory", "a directory"),
        ("link", "a symbolic link"),
        ("datagram", "a socket of another kind (not a stream socket)"),
    ] {
        let error = refusal(&at(name));
        assert!(error.contains(&format!("{name} is {kind} and not a socket that could be replaced")), "{error}");
    }
    assert_eq!(fs::read_to_string(at("file")).unwrap(), "precious");
}

#[test]
fn paths_that_no_socket_can_have_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let fits = directory.path().join("x".repeat(106 - directory.path().as_os_str().len()));
    assert_eq!(fits.as_os_str().len(), 107);
    drop(bind(&fits).unwrap());
    let error = refusal(&fits.with_extension("y"));
    assert!(error.contains("bytes long and the kernel takes 107; choose a shorter one"), "{error}");
    assert!(refusal(Path::new("/")).contains("names no file"));
    let below_a_file = directory.path().join("file/kubelet.sock");
    fs::write(directory.path().join("file"), "").unwrap();
    assert!(refusal(&below_a_file).starts_with("cannot look at "), "{}", refusal(&below_a_file));
}

#[test]
fn a_directory_that_we_may_not_write_to_is_named() {
    const TEST: &str = "place::a_directory_that_we_may_not_write_to_is_named";
    if let Some(path) = child_path() {
        let error = refusal(&path);
        assert!(error.starts_with("no permission to bind a socket at "), "{error}");
        assert!(error.contains("run as root or as the owner of the directory"), "{error}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o555)).unwrap();
    let mut child = again(TEST, &directory.path().join("kubelet.sock"));
    if geteuid().is_root() {
        // Root may write anywhere; so somebody else tries, from a copy that he can read.
        let copy = tempfile::tempdir().unwrap();
        fs::set_permissions(copy.path(), Permissions::from_mode(0o755)).unwrap();
        let binary = copy.path().join("serve");
        fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
        let mut as_nobody = std::process::Command::new(binary);
        as_nobody.args(child.get_args()).env("SERVE_TEST_SOCKET", directory.path().join("kubelet.sock"));
        assert!(as_nobody.uid(65534).gid(65534).current_dir("/").status().unwrap().success());
    } else {
        assert!(child.status().unwrap().success());
    }
}

#[test]
fn a_full_and_a_read_only_file_system_are_told_apart() {
    const TEST: &str = "place::a_full_and_a_read_only_file_system_are_told_apart";
    if let Some(path) = child_path() {
        let error = refusal(&path.join("full/kubelet.sock"));
        assert!(error.contains("no space left") && error.contains("free some (bytes or inodes)"), "{error}");
        let error = refusal(&path.join("frozen/kubelet.sock"));
        assert!(error.contains("the file system is read-only; mount it read-write"), "{error}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let child = again(TEST, directory.path());
    // In a mount namespace of its own, so that nothing is left behind.
    let script = r#"set -e; cd "$SERVE_TEST_SOCKET"; mkdir full frozen
        mount -t tmpfs -o nr_inodes=1 full full; mount -t tmpfs -o ro frozen frozen; exec "$@""#;
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(child.get_program()).args(child.get_args());
    let ran = unshare.env("SERVE_TEST_SOCKET", directory.path()).output().expect("unshare (util-linux) runs");
    assert!(ran.status.success(), "needs user and mount namespaces:\n{}", String::from_utf8_lossy(&ran.stderr));
}

#[tokio::test]
async fn a_leftover_of_a_process_that_died_before_publishing_is_no_obstacle() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubelet.sock");
    let bound = bind(&path).unwrap();
    let leftover = directory.path().join(&names(directory.path())[0]);
    drop(bound);
    drop(UnixListener::bind(&leftover).unwrap());
    assert!(leftover.exists());
    let _bound = bind(&path).unwrap();
    assert_eq!(names(directory.path()).len(), 1, "{:?}", names(directory.path()));
}

#[tokio::test]
async fn a_socket_file_that_somebody_removes_is_made_anew_and_connections_live_on() {
    let mut server = Running::with(&Fake::replying(b""), |config| config.socket.mode = 0o606);
    let path = server.path();
    let mut early = Client::connect(&path).await.unwrap();
    early.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    let removed = async {
        fs::remove_file(&path).unwrap();
        eventually("the file is back", || path.exists()).await;
        Client::connect(&path).await.unwrap().ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o606);
        // Its directory too, and again.
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
        eventually("the file is back", || path.exists()).await;
        Client::connect(&path).await.unwrap().ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
        early.ask(LIST, |_| {}).await.assert_ok(&[0; 5]);
    };
    tokio::select! {
        () = server.serving.taken_over() => panic!("nobody has taken over"),
        () = removed => {}
    }
    server.stop.cancel();
    server.serving.drained().await;
    assert_eq!(names(path.parent().unwrap()), [""; 0]);
}

#[tokio::test]
async fn who_removes_our_file_and_serves_there_has_taken_over() {
    let mut server = Running::new(&Fake::replying(b""));
    let path = server.path();
    fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    server.serving.taken_over().await;
    server.stop.cancel();
    server.serving.drained().await;
    assert!(path.exists());
}

#[tokio::test]
async fn what_others_put_at_our_path_is_not_removed_at_the_end() {
    let mut server = Running::new(&Fake::replying(b""));
    let path = server.path();
    let theirs = path.with_file_name("theirs");
    fs::write(&theirs, "theirs").unwrap();
    fs::rename(&theirs, &path).unwrap();
    server.serving.taken_over().await;
    server.stop.cancel();
    server.serving.drained().await;
    assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
}
