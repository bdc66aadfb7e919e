//! `cargo xtask bench`: the benches, built as they are released.

use std::process::ExitCode;

use crate::report::Report;
use crate::shell;

/// Run the benches
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this one (a name of `[[bench]]` in Cargo.toml)
    name: Option<String>,
}

pub(crate) fn run(Args { name }: &Args) -> ExitCode {
    let mut report = Report::new();
    report.step(name.as_deref().unwrap_or("all benches"), &[], || {
        let mut command = shell::cargo();
        command.args(["bench", "--locked"]);
        match name {
            Some(name) => command.args(["--bench", name]),
            None => command.arg("--benches"),
        };
        shell::run(&mut command)
    });
    report.finish()
}
