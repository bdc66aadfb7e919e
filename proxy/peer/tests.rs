//! What needs no other program: ourselves as our own peer, and processes that are held, end, and have their pid used again.

use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command};

use super::process::{Look, Process};
use super::*;
use crate::kubepods::Kubepods;

fn resolver() -> Resolver {
    let nowhere = std::path::PathBuf::from("/nonexistent");
    Resolver::new(Kubepods { cgroup_root: nowhere.clone(), pod_logs: nowhere }, Vec::new()).unwrap()
}

/// A socket of ours, and the other end of it.
fn connected() -> (UnixStream, UnixStream) {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(dir.path().join("s")).unwrap();
    let client = UnixStream::connect(dir.path().join("s")).unwrap();
    (client, listener.accept().unwrap().0)
}

fn sleeping() -> Child {
    Command::new("sleep").arg("600").spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn we_are_seen_by_our_own_pid_and_user_with_and_without_peer_pidfds() {
    let (_client, server) = connected();
    let resolver = resolver();
    let [by_pidfd, by_pid] = [true, false].map(|by_pidfd| resolver.answer(&Inquiry::with(server.as_fd(), by_pidfd)));
    assert_eq!(by_pidfd.pid, Some(std::process::id()));
    assert_eq!(by_pidfd.uid, rustix::process::geteuid().as_raw());
    assert_eq!(by_pidfd, by_pid);
    assert_eq!(resolver.sight(), Sight { resolved: 2, ..Sight::default() });
}

#[test]
fn what_is_no_unix_socket_is_nobody_in_particular_and_asks_for_no_rights() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let resolver = resolver();
    assert_eq!(resolver.resolve(server.as_fd()), Peer::of_uid(u32::MAX));
    assert!(!resolver.sight().needs_host_pid());
}

#[test]
fn a_process_is_seen_while_it_lives_and_gone_once_it_has_ended_reaped_or_not() {
    let mut child = sleeping();
    let holds = [Process::of_pid(child.id()).unwrap(), Process::by_start_time(child.id()).unwrap()];
    for process in &holds {
        assert!(matches!(process.look(), Look::Alive { pid, .. } if pid == child.id()), "{process:?}");
    }
    child.kill().unwrap();
    // Ended, and not reaped: WNOWAIT.
    let id = rustix::process::WaitId::Pid(rustix::process::Pid::from_child(&child));
    rustix::process::waitid(id, rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT).unwrap();
    for process in &holds {
        assert_eq!(process.look(), Look::Gone, "{process:?}, not reaped");
    }
    child.wait().unwrap();
    for process in &holds {
        assert_eq!(process.look(), Look::Gone, "{process:?}, reaped");
    }
}

#[test]
fn a_process_that_has_the_pid_of_one_that_was_held_is_not_taken_for_it() {
    if !std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/sys/kernel/ns_last_pid")
        .is_ok_and(|_| rustix::process::geteuid().is_root())
    {
        assert!(std::env::var_os("CI").is_none(), "as root: /proc/sys/kernel/ns_last_pid says which pid comes next");
        return eprintln!("not tested: choosing a pid takes root");
    }
    let first = sleeping();
    let pid = first.id();
    let holds = [Process::of_pid(pid).unwrap(), Process::by_start_time(pid).unwrap()];
    end(first);
    // Others start processes too: it may take some tries. A start time is in ticks of 10 ms.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let second = (0..10_000).find_map(|_| {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
        let child = sleeping();
        if child.id() == pid {
            Some(child)
        } else {
            end(child);
            None
        }
    });
    let second = second.expect("the pid comes round again");
    for process in &holds {
        assert_eq!(process.look(), Look::Gone, "{process:?}");
    }
    assert!(matches!(Process::of_pid(pid).unwrap().look(), Look::Alive { .. }));
    end(second);
}
