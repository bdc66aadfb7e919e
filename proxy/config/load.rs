//! Reading the file from the disk, and everything else from the process: the thin edge.

use std::io;
use std::path::{Path, PathBuf};

use super::args::Args;
use super::environment::Environment;
use super::error::{ConfigError, ConfigErrors};
use super::file::File;
use super::resolve::{Place, Resolved, resolve};

/// Read where it exists and no other file was named.
pub const DEFAULT_FILE: &str = "/etc/podresources-proxy/config.toml";
/// More than any configuration needs; a device or a log by mistake has more.
const FILE_MAX: u64 = 1 << 20;

/// The configuration of this process.
pub fn load(args: &Args) -> Result<Resolved, ConfigErrors> {
    let environment = Environment::of_process();
    let named = args.config.clone().or_else(|| environment.config());
    let file = match named {
        Some(path) => Some(read(&path)?),
        None => match read(Path::new(DEFAULT_FILE)) {
            Ok(file) => Some(file),
            Err(errors) if absent(&errors) => None,
            Err(errors) => return Err(errors),
        },
    };
    resolve(args, &environment, file.as_ref(), &Place::of_process())
}

/// The file that [`load`] reads, whether it is there or not.
pub fn file_of(args: &Args) -> PathBuf {
    args.config.clone().or_else(|| Environment::of_process().config()).unwrap_or_else(|| DEFAULT_FILE.into())
}

fn read(path: &Path) -> Result<File, ConfigErrors> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let text = text(path).map_err(failed)?;
    File::parse(path, &text)
}

fn text(path: &Path) -> io::Result<String> {
    use std::io::Read;

    let mut text = String::new();
    let length = std::fs::File::open(path)?.take(FILE_MAX.saturating_add(1)).read_to_string(&mut text)?;
    if u64::try_from(length).is_ok_and(|length| length > FILE_MAX) {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB; is it the right file?"));
    }
    Ok(text)
}

fn absent(errors: &ConfigErrors) -> bool {
    matches!(errors.0.as_slice(), [ConfigError::Read { source, .. }] if source.kind() == io::ErrorKind::NotFound)
}
