//! The `podresources-proxy` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    podresources_proxy::cli::main()
}
