//! `run --demo` as a newcomer meets it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running demo; killed when dropped.
struct Demo {
    child: Child,
    log: std::io::Lines<BufReader<ChildStderr>>,
    /// The commands that it says to type, in its own order.
    next: Vec<String>,
}

// === impl Demo ===

impl Demo {
    /// Starts a demo and reads its log until it has said the last of what to type.
    fn start(runtime_dir: &Path, flags: &[&str]) -> Self {
        let mut command = crate::plain(assert_cmd::cargo::cargo_bin("podresources-proxy"));
        command.args(["run", "--demo"]).args(flags).env("XDG_RUNTIME_DIR", runtime_dir);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut demo = Self { child, log, next: Vec::new() };
        let mut said = String::new();
        while demo.next.last().is_none_or(|last| !last.starts_with("curl ")) {
            let line = demo.log.next().unwrap_or_else(|| panic!("the demo has ended:\n{said}")).unwrap();
            let typed = line.split_once("demo: now type: ").or_else(|| line.split_once("demo: or: "));
            demo.next.extend(typed.map(|(_, command)| command.to_owned()));
            said.push_str(&line);
            said.push('\n');
        }
        demo
    }

    /// Types what it said, and returns what that prints.
    fn type_in(&self, nth: usize) -> String {
        let mut words = self.next[nth].split(' ');
        let output = crate::plain(words.next().unwrap().into()).args(words).output().unwrap();
        assert!(output.status.success(), "{}: {output:?}", self.next[nth]);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits for its end, and returns what it logged last.
    fn ended(mut self) -> String {
        let log: Vec<String> = self.log.by_ref().map_while(Result::ok).collect();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{log:#?}");
        log.join("\n")
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn what_a_demo_says_to_type_works_and_a_second_demo_stands_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = Demo::start(dir.path(), &[]);
    let second = Demo::start(dir.path(), &[]);
    assert_ne!(first.next[0], second.next[0]);
    for demo in [&first, &second] {
        assert!(demo.type_in(0).lines().count() > 110, "{}", demo.next[0]);
        let room = demo.type_in(1);
        let nodes: Vec<_> = room.lines().filter(|line| line.contains(" cpu ")).map(|line| &line[..1]).collect();
        assert_eq!(nodes, ["0", "1"], "{room}");
        assert!(demo.type_in(2).contains("ready      yes"), "{}", demo.next[2]);
    }
    for demo in [first, second] {
        kill_process(Pid::from_child(&demo.child), Signal::TERM).unwrap();
        demo.ended();
    }
    let left = std::fs::read_dir(dir.path().join("podresources-proxy/demo/pod-resources")).unwrap().count();
    assert_eq!(left, 0, "no socket is left behind");
}

#[test]
fn a_demo_that_replaces_another_serves_at_the_same_place_and_the_other_ends_well() {
    let dir = tempfile::tempdir().unwrap();
    let first = Demo::start(dir.path(), &[]);
    let second = Demo::start(dir.path(), &["--replace"]);
    assert_eq!(first.next[0], second.next[0]);
    let log = first.ended();
    assert!(log.contains("another instance has taken the socket over"), "{log}");
    assert!(second.type_in(0).lines().count() > 110);
}
