//! Nobody starves anybody: bad clients of every kind, and beside each twenty honest ones (grpc-go), each a client of its own. The honest see
//! no error; the proxy keeps to its memory and to the kubelet's budget, and lets go of everything when the abuse ends.
//!
//! `cargo xtask test --only abuse` runs it as root, three seconds a case; `ABUSE_SECONDS=30` for the long form, in which each case is run
//! twice: once against the proxy, once against an unrelated socket, which gives what the honest see alone.
//! Latencies are printed, not judged. A word as argument picks the cases with it in their name.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should say where")]

mod abuser;
mod attacks;
mod cases;
mod cgroup;
#[path = "../peer/cgroups.rs"]
mod cgroups;
#[path = "../serve/frames.rs"]
#[expect(dead_code, reason = "this test needs a part of it")]
mod frames;
#[path = "../harness/mod.rs"]
#[expect(dead_code, reason = "this test needs a part of it")]
mod harness;
mod run;
#[path = "../real_kubelet/storm.rs"]
#[expect(dead_code, reason = "this test needs a part of it")]
mod storm;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use cgroup::Quota;
use run::Form;

/// Seconds of a case in the short form.
const SHORT: u64 = 3;
/// Part of one CPU that all abusers together have, so that it is our work that the honest meet, and not the CPU that abusers burn.
const QUOTA: f64 = 0.5;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|argument| argument == abuser::AS).is_some() {
        abuser::main(arguments);
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = arguments.filter(|argument| !argument.starts_with("--")).collect();
    if !has_means() {
        return if std::env::var_os("CI").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(all(&words))
}

/// Whether everything is there; says what is not.
fn has_means() -> bool {
    let root = rustix::process::geteuid().is_root();
    let clients = std::env::var_os("CLIENTS_BIN").is_some();
    if !root {
        eprintln!("not tested: abuse beside honest clients takes root, for cgroups");
    }
    if !clients {
        eprintln!(
            "not tested: abuse beside honest clients takes CLIENTS_BIN, the folder of tests/clients/build; cargo xtask test sees to that"
        );
    }
    root && clients
}

async fn all(words: &[String]) -> ExitCode {
    let long = std::env::var("ABUSE_SECONDS").ok().map(|seconds| seconds.parse().expect("ABUSE_SECONDS is a number"));
    let length = Duration::from_secs(long.unwrap_or(SHORT));
    let quota = Quota::new(QUOTA);
    let form = Form { length, quota: quota.as_ref().map(Quota::path), elsewhere: false };
    let mut faults = Vec::new();
    let chosen = cases::ALL.iter().filter(|case| words.iter().all(|word| case.name.contains(word.as_str())));
    println!("{}", table::HEAD);
    let mut some = false;
    for case in chosen {
        some = true;
        let alone = match long {
            Some(_) => Some(run::run(case, &Form { elsewhere: true, ..form.clone() }).await),
            None => None,
        };
        let seen = run::run(case, &form).await;
        println!("{}", table::line(case, &seen, alone.as_ref()));
        faults.extend(seen.faults().into_iter().map(|fault| format!("{}: {fault}", case.name)));
    }
    for fault in &faults {
        eprintln!("FAILED {fault}");
    }
    assert!(some, "no case has all of {words:?} in its name");
    if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
