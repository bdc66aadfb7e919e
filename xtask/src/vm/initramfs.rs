//! The guest's root file system as the kernel unpacks it at boot: a cpio archive.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use cpio::newc::{Builder, ModeFileType, trailer};

/// An archive that is being written. Everything belongs to root.
pub(crate) struct Initramfs {
    out: BufWriter<File>,
    known: BTreeSet<PathBuf>,
}

// === impl Initramfs ===

impl Initramfs {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut archive = Self { out: BufWriter::new(file), known: BTreeSet::from([PathBuf::from("/")]) };
        for folder in ["/dev", "/proc", "/sys", "/run", "/tmp", "/new"] {
            archive.folder(Path::new(folder))?;
        }
        Ok(archive)
    }

    /// The file or folder `from` with all that is in it, at `at`.
    pub(crate) fn tree(&mut self, at: &Path, from: &Path) -> Result<()> {
        let metadata = from.symlink_metadata().with_context(|| format!("cannot read {}", from.display()))?;
        if metadata.is_symlink() {
            return self.link(at, &fs::read_link(from)?);
        }
        if metadata.is_file() {
            return self.file(at, from);
        }
        self.folder(at)?;
        for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
            let entry = entry?;
            self.tree(&at.join(entry.file_name()), &entry.path())?;
        }
        Ok(())
    }

    /// The file `from`, at `at`.
    pub(crate) fn file(&mut self, at: &Path, from: &Path) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
        let mode = from.metadata()?.permissions().mode();
        self.entry(at, ModeFileType::Regular, mode & 0o7777, &content)
    }

    pub(crate) fn text(&mut self, at: &Path, text: &str) -> Result<()> {
        self.entry(at, ModeFileType::Regular, 0o644, text.as_bytes())
    }

    pub(crate) fn link(&mut self, at: &Path, target: &Path) -> Result<()> {
        self.entry(at, ModeFileType::Symlink, 0o777, target.as_os_str().as_bytes())
    }

    /// A folder and those above it, which anyone may enter.
    pub(crate) fn folder(&mut self, at: &Path) -> Result<()> {
        if self.known.contains(at) {
            return Ok(());
        }
        self.entry(at, ModeFileType::Directory, 0o755, &[])
    }

    pub(crate) fn finish(mut self) -> Result<()> {
        self.out = trailer(self.out)?;
        self.out.flush().context("cannot write the initramfs")
    }

    fn entry(&mut self, at: &Path, kind: ModeFileType, mode: u32, content: &[u8]) -> Result<()> {
        let Some(name) = at.to_str().and_then(|text| text.strip_prefix('/')) else {
            bail!("{} cannot be a path in the guest: absolute and UTF-8 it must be", at.display());
        };
        if let Some(above) = at.parent() {
            self.folder(above)?;
        }
        if !self.known.insert(at.to_owned()) {
            return Ok(());
        }
        let size =
            u32::try_from(content.len()).with_context(|| format!("{} is larger than a cpio archive allows", at.display()))?;
        let mut writer = Builder::new(name).mode(mode).set_mode_file_type(kind).write(&mut self.out, size);
        writer.write_all(content)?;
        writer.finish().map(drop).with_context(|| format!("cannot write {} to the initramfs", at.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(archive: &Path) -> Vec<String> {
        let mut input = File::open(archive).unwrap();
        let mut names = Vec::new();
        loop {
            let reader = cpio::newc::Reader::new(input).unwrap();
            if reader.entry().is_trailer() {
                return names;
            }
            names.push(reader.entry().name().to_owned());
            input = reader.finish().unwrap();
        }
    }

    #[test]
    fn every_folder_stands_before_what_is_in_it_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("initramfs");
        let mut archive = Initramfs::create(&path).unwrap();
        archive.text(Path::new("/a/b/c"), "c").unwrap();
        archive.text(Path::new("/a/b/d"), "d").unwrap();
        archive.text(Path::new("/a/b/d"), "again").unwrap();
        archive.finish().unwrap();
        let names = names(&path);
        let ours: Vec<_> = names.iter().filter(|name| name.starts_with('a')).collect();
        assert_eq!(ours, ["a", "a/b", "a/b/c", "a/b/d"]);
    }

    #[test]
    fn a_relative_path_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = Initramfs::create(&folder.path().join("initramfs")).unwrap();
        let error = archive.text(Path::new("a/b"), "").unwrap_err();
        assert!(error.to_string().starts_with("a/b cannot be a path"), "{error}");
    }
}
