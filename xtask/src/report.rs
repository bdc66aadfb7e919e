//! What ran and how it ended: a table at the end, and an exit code that agrees with it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use comfy_table::{Table, presets};

use crate::means::Means;

/// The steps so far.
pub(crate) struct Report {
    rows: Vec<(String, Outcome)>,
    nothing_may_be_missing: bool,
}

enum Outcome {
    Passed(Duration),
    Failed(Duration, String),
    NotRun(Vec<Means>),
    /// Only where it is asked for, by this command.
    ByHand(&'static str),
}

// === impl Report ===

impl Report {
    /// A report of no steps. With `CI=true` a missing means is a failure.
    pub(crate) fn new() -> Self {
        let ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
        Self { rows: Vec::new(), nothing_may_be_missing: ci }
    }

    /// Runs one step, unless the machine lacks what it needs. A failed step does not stop the next ones: one run tells everything.
    pub(crate) fn step(&mut self, name: &str, needs: &[Means], run: impl FnOnce() -> Result<()>) {
        println!("\n── {name} ──");
        let missing: Vec<_> = needs.iter().copied().filter(|means| !means.is_here()).collect();
        let outcome = if missing.is_empty() {
            #[expect(clippy::disallowed_types, reason = "nobody pauses the clock of a build")]
            let start = std::time::Instant::now();
            match run() {
                Ok(()) => Outcome::Passed(start.elapsed()),
                Err(error) => {
                    println!("failed: {error:#}");
                    Outcome::Failed(start.elapsed(), format!("{error:#}"))
                }
            }
        } else {
            println!("not run here");
            Outcome::NotRun(missing)
        };
        self.rows.push((name.to_owned(), outcome));
    }

    /// Names a step that is no part of the whole.
    pub(crate) fn by_hand(&mut self, name: &str, command: &'static str) {
        self.rows.push((name.to_owned(), Outcome::ByHand(command)));
    }

    /// Prints the table and says how it went as a whole.
    pub(crate) fn finish(self) -> ExitCode {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(["STEP", "RESULT", "TIME", ""]);
        let mut failed = 0;
        let mut missing = 0;
        let mut by_hand = 0;
        for (name, outcome) in &self.rows {
            match outcome {
                Outcome::Passed(took) => table.add_row([name, "passed", &seconds(*took), ""]),
                Outcome::Failed(took, why) => {
                    failed += 1;
                    table.add_row([name, "FAILED", &seconds(*took), why.lines().next().unwrap_or_default()])
                }
                Outcome::ByHand(command) => {
                    by_hand += 1;
                    table.add_row([name, "by hand", "", command])
                }
                Outcome::NotRun(means) => {
                    missing += 1;
                    let what: Vec<_> = means.iter().map(|means| means.install).collect();
                    table.add_row([name, "not run here", "", &format!("install {}", what.join("; "))])
                }
            };
        }
        println!("\n{table}\n");
        let passed = self.rows.len() - failed - missing - by_hand;
        println!("{passed} passed, {failed} failed, {missing} not run here, {by_hand} by hand");
        if failed > 0 {
            return ExitCode::FAILURE;
        }
        if missing > 0 && self.nothing_may_be_missing {
            println!("CI=true: nothing may be missing");
            return ExitCode::FAILURE;
        }
        ExitCode::SUCCESS
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
