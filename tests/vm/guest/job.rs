//! What the machine outside orders of the guest, and how the guest tells the end. Both sides share these types.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where the guest finds its job.
pub const JOB: &str = "/job.json";

/// A file system of its own for what the program writes. The kubelet asks for its folder's file system, and does not know the first root.
pub const SCRATCH: &str = "/scratch";

/// One program to run, and the world to run it in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The program, as a path of the guest.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// The folder in which it starts.
    pub folder: PathBuf,
    /// Who it is.
    pub identity: Identity,
    /// Which cgroup hierarchies it sees.
    pub cgroups: Cgroups,
    /// The machine as it was ordered, for a program that wants to know.
    pub machine: Machine,
    /// Kernel modules to load before, as files of the guest.
    pub modules: Vec<PathBuf>,
    /// The device for the program's output and the last line; the console is the kernel's alone.
    pub port: PathBuf,
    /// Begins the last line. Nobody in the guest can know it before.
    pub seal: String,
}

/// The machine as it was ordered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Such as `6.1`.
    pub kernel: String,
    /// CPUs of the whole machine.
    pub cpus: u32,
    /// NUMA nodes, each with as many CPUs as the others.
    pub nodes: u32,
    /// Whether the kernel refuses to be looked into.
    pub lockdown: bool,
}

/// The cgroup hierarchies below `/sys/fs/cgroup`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cgroups {
    /// One hierarchy per controller.
    V1,
    /// The unified hierarchy alone.
    #[default]
    V2,
    /// One hierarchy per controller, and a unified one without controllers in `unified`.
    Hybrid,
}

/// A user id and the capabilities that it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User and group id.
    pub uid: u32,
    /// Names such as `cap_bpf`; `None`: whatever the kernel gives this user id.
    pub capabilities: Option<Vec<String>>,
}

/// How the guest's job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program's exit code.
    Exited(i32),
    /// The signal that ended the program.
    Killed(i32),
    /// Why the program could not be run.
    Failed(String),
}

// === impl Job ===

impl Job {
    /// The text of [`JOB`].
    pub fn to_text(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Reads the text of [`JOB`].
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

// === impl Identity ===

impl Identity {
    /// Reads `root`, `UID`, or `UID:CAPABILITY,…` (`UID:` has none).
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "root" {
            return Ok(Self::default());
        }
        let (uid, capabilities) = match text.split_once(':') {
            Some((uid, names)) => (uid, Some(names)),
            None => (text, None),
        };
        let uid = uid.parse().map_err(|_| format!("`{uid}` is no user id: `root`, `65534:` or `65534:cap_bpf,cap_perfmon`"))?;
        let capabilities =
            capabilities.map(|names| names.split(',').filter(|name| !name.is_empty()).map(str::to_lowercase).collect());
        Ok(Self { uid, capabilities })
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.capabilities {
            None if self.uid == 0 => f.write_str("root"),
            None => write!(f, "{}", self.uid),
            Some(names) => write!(f, "{}:{}", self.uid, names.join(",")),
        }
    }
}

// === impl End ===

impl End {
    /// The last line of the guest's output.
    pub fn to_line(&self, seal: &str) -> String {
        match self {
            Self::Exited(code) => format!("{seal} exited {code}"),
            Self::Killed(signal) => format!("{seal} killed {signal}"),
            Self::Failed(why) => format!("{seal} failed {}", why.replace('\n', " ")),
        }
    }

    /// Reads such a line; any other is the program's own.
    pub fn from_line(line: &str, seal: &str) -> Option<Self> {
        let (verb, rest) = line.strip_prefix(seal)?.trim_start().split_once(' ')?;
        match verb {
            "exited" => rest.parse().ok().map(Self::Exited),
            "killed" => rest.parse().ok().map(Self::Killed),
            "failed" => Some(Self::Failed(rest.to_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_read_back_as_it_was_written() {
        for end in [End::Exited(0), End::Exited(101), End::Killed(9), End::Failed("no such file".into())] {
            assert_eq!(End::from_line(&end.to_line("seal-1"), "seal-1"), Some(end));
        }
    }

    #[test]
    fn a_line_of_the_program_is_no_end_even_if_it_looks_like_one() {
        for line in ["", "exited 0", "seal-2 exited 0", "seal-1", "seal-1 exited", "seal-1 exited x", "the seal-1 exited 0"] {
            assert_eq!(End::from_line(line, "seal-1"), None, "{line}");
        }
    }

    #[test]
    fn an_end_is_one_line_whatever_the_error_says() {
        assert_eq!(End::Failed("a\nb".into()).to_line("s").lines().count(), 1);
    }

    #[test]
    fn identities_are_read_as_people_write_them() {
        let of =
            |uid, names: &[&str]| Ok(Identity { uid, capabilities: Some(names.iter().map(|&name| name.to_owned()).collect()) });
        assert_eq!(Identity::parse("root"), Ok(Identity::default()));
        assert_eq!(Identity::parse("1000"), Ok(Identity { uid: 1000, capabilities: None }));
        assert_eq!(Identity::parse("65534:"), of(65534, &[]));
        assert_eq!(Identity::parse("0:CAP_BPF,cap_perfmon"), of(0, &["cap_bpf", "cap_perfmon"]));
        assert!(Identity::parse("nobody").unwrap_err().contains("`nobody` is no user id"));
    }
}
