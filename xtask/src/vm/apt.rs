//! Debian's packages without touching the machine's own: lists, cache and status below `target/vm`, for any suite and architecture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::shell;

/// Debian signs its lists with these keys.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MIRROR: &str = "http://deb.debian.org/debian";

/// One suite for one architecture.
pub(crate) struct Suite {
    name: &'static str,
    architecture: &'static str,
    folder: PathBuf,
}

// === impl Suite ===

impl Suite {
    /// `name` such as `bookworm`, `architecture` as Debian calls it. Fetches the lists.
    pub(crate) fn open(name: &'static str, architecture: &'static str) -> Result<Self> {
        if !Path::new(KEYS).exists() {
            bail!("{KEYS} is missing: install debian-archive-keyring");
        }
        let folder = shell::target().join("vm").join("apt").join(format!("{name}-{architecture}"));
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part)).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let source = format!("deb [signed-by={KEYS} arch={architecture}] {MIRROR} {name} main\n");
        fs::write(folder.join("sources.list"), source)?;
        // Nothing is installed there: all that a package depends on is fetched too.
        fs::write(folder.join("status"), "")?;
        let suite = Self { name, architecture, folder };
        shell::run(suite.command("apt-get").args(["--quiet", "--quiet", "update"]))?;
        Ok(suite)
    }

    /// The package that a metapackage such as `linux-image-cloud-amd64` stands for.
    pub(crate) fn stands_for(&self, metapackage: &str) -> Result<String> {
        let text = shell::output(self.command("apt-cache").args(["depends", metapackage]))?;
        let found = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
        found.map(str::to_owned).with_context(|| format!("{metapackage} of Debian {} depends on nothing", self.name))
    }

    /// Fetches this package alone.
    pub(crate) fn alone(&self, package: &str) -> Result<PathBuf> {
        let downloads = self.folder.join("downloads");
        fs::create_dir_all(&downloads)?;
        shell::run(self.command("apt-get").args(["--quiet", "--quiet", "download", package]).current_dir(&downloads))?;
        let start = format!("{package}_");
        let archive = archives(&downloads)?.into_iter().find(|path| named(path).starts_with(&start));
        archive.with_context(|| format!("apt-get download left no {package} in {}", downloads.display()))
    }

    /// Fetches the packages and everything that they depend on.
    pub(crate) fn with_dependencies(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let mut command = self.command("apt-get");
        command.args(["-o", "APT::Install-Recommends=false", "-o", "Debug::NoLocking=true", "--quiet", "--quiet", "--yes"]);
        shell::run(command.args(["--download-only", "install"]).args(packages))?;
        archives(&self.folder.join("cache/archives"))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let at = |part: &str| self.folder.join(part).display().to_string();
        for option in [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={}", at("lists")),
            format!("Dir::State::status={}", at("status")),
            format!("Dir::Cache={}", at("cache")),
            format!("APT::Architecture={}", self.architecture),
            // Root's downloads would be made by a user who cannot write here.
            "APT::Sandbox::User=".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }
}

fn archives(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "deb")).collect())
}

fn named(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
