//! Peers that have ended before we look, and others that have got their pids.

use std::fs;
use std::os::fd::AsFd as _;

use podresources_proxy::peer::{Client, Inquiry, Peer};

use crate::caller::{Door, is_root};

/// Says to the kernel which pid was given last.
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

#[test]
fn who_has_ended_before_we_look_is_departed() {
    let door = Door::open();
    let caller = door.call_from(&[]);
    let socket = door.accept();
    caller.end();
    let resolver = door.resolver();
    assert_eq!(resolver.resolve(socket.as_fd()), Peer::departed(rustix::process::geteuid().as_raw()));
    assert_eq!(resolver.sight().departed, 1);
}

#[test]
fn who_ends_between_the_question_and_the_answer_is_departed() {
    let door = Door::open();
    let caller = door.call_from(&[]);
    let inquiry = Inquiry::of(door.accept().as_fd());
    caller.end();
    assert_eq!(door.resolver().answer(&inquiry).client, Client::Departed);
}

#[test]
fn a_process_that_has_got_a_peers_pid_is_not_taken_for_it() {
    if !is_root("choosing the pid of a process") {
        return;
    }
    let door = Door::open();
    let resolver = door.resolver();
    let caller = door.call_from(&[]);
    let pid = caller.pid();
    let asked_early = door.accept();
    let inquiry = Inquiry::of(asked_early.as_fd());
    caller.end();
    // Others on the machine start processes too: it may take a few tries.
    let impostor = (0..10_000).find_map(|_| {
        fs::write(LAST_PID, (pid - 1).to_string()).unwrap();
        let caller = door.call_from(&[]);
        (caller.pid() == pid).then_some(caller)
    });
    let impostor = impostor.expect("the pid comes round again");
    assert!(fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok(), "the pid is in use");
    assert_eq!(resolver.answer(&inquiry).client, Client::Departed, "asked while it lived");
    assert_eq!(resolver.resolve(asked_early.as_fd()).client, Client::Departed, "asked when the pid was another's");
    impostor.end();
}
