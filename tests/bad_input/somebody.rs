//! The program run by a user other than root.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::harness::Place;

/// Nobody's files need be there.
pub(crate) const SOMEBODY: u32 = 65534;

/// Makes a command that of somebody else, who can read the program and the place, and to whom these directories are given. Root alone can.
pub(crate) fn as_somebody(place: &Place, command: &Command, directories: &[&str]) -> Command {
    fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    for directory in directories {
        fs::create_dir_all(place.path(directory)).unwrap();
        chown(place.path(directory), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
    }
    let program = place.path("program");
    fs::copy(command.get_program(), &program).unwrap();
    let mut theirs = wrapped(Command::new(program), command);
    theirs.current_dir("/").uid(SOMEBODY).gid(SOMEBODY);
    theirs
}

/// Gives a command the arguments and the environment of another.
pub(crate) fn wrapped(mut outer: Command, inner: &Command) -> Command {
    outer.args(inner.get_args()).envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    outer
}
