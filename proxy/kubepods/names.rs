//! Who is who: container ids to names by the runtimes' bundles, pod uids to names by bundles and the pod log directory.
//!
//! A bundle never changes, so each is read once. Everything here blocks.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::bundle::{self, BundleError, Identity};
use super::pod_logs;
use super::uid::PodUid;
use crate::snapshot::PodName;

/// The longest `config.json` that is read, in bytes. Real ones have 10 to 60 KiB.
const LONGEST_BUNDLE: u64 = 1 << 20;

/// Bundles remembered at most; beyond, they are read again each time.
const MOST_BUNDLES: usize = 1 << 16;

/// Names by id.
#[derive(Debug)]
pub struct Names {
    bundle_dirs: Vec<PathBuf>,
    pod_logs: PathBuf,
    bundles: HashMap<Box<str>, Identity>,
    pods: HashMap<PodUid, PodName>,
    /// Whether the log directory has been read since the last [`Names::begin`].
    looked: bool,
    /// Entries of the log directory that name no pod.
    odd_logs: u64,
}

/// Why a container has no name.
#[derive(Debug, thiserror::Error)]
pub enum Unnamed {
    /// No runtime has a bundle for it.
    #[error("no runtime directory has a bundle for it")]
    NoBundle,
    /// The bundle cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The bundle is longer than any real one.
    #[error("{} is longer than {LONGEST_BUNDLE} bytes", .0.display())]
    TooLong(PathBuf),
    /// The bundle says nothing.
    #[error("{}: {source}", .path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: BundleError,
    },
}

// === impl Names ===

impl Names {
    /// Names from these places. Below a bundle directory lies `<id>/config.json` (containerd) or `<id>/userdata/config.json` (CRI-O).
    #[must_use]
    pub fn new(bundle_dirs: Vec<PathBuf>, pod_logs: PathBuf) -> Self {
        Self { bundle_dirs, pod_logs, bundles: HashMap::new(), pods: HashMap::new(), looked: false, odd_logs: 0 }
    }

    /// A new scan begins: the log directory is looked at again when a pod's name is asked for that is not known.
    pub fn begin(&mut self) {
        self.looked = false;
    }

    /// What the container or sandbox of this id is. `uid` is the uid of the pod that it was found in.
    pub fn identity(&mut self, id: &str, uid: &PodUid) -> Result<&Identity, Unnamed> {
        if !self.bundles.contains_key(id) {
            let identity = self.read_bundle(id, uid)?;
            if self.bundles.len() >= MOST_BUNDLES {
                self.bundles.clear();
            }
            self.bundles.insert(id.into(), identity);
        }
        self.bundles.get(id).ok_or(Unnamed::NoBundle)
    }

    /// Forgets what is not among these ids.
    pub fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.bundles.retain(|id, _| is_there(id));
    }

    /// The name of a pod that no bundle names.
    pub fn pod(&mut self, uid: &PodUid) -> Option<&PodName> {
        if !self.looked && !self.pods.contains_key(uid) {
            self.looked = true;
            (self.pods, self.odd_logs) = pod_logs::survey(&self.pod_logs);
        }
        self.pods.get(uid)
    }

    /// Entries of the pod log directory that name no pod.
    #[must_use]
    pub const fn odd_logs(&self) -> u64 {
        self.odd_logs
    }

    fn read_bundle(&mut self, id: &str, uid: &PodUid) -> Result<Identity, Unnamed> {
        let (path, json) = self.find_bundle(id)?;
        let logs = self.pods.get(uid).map(|PodName { namespace, name }| format!("{namespace}_{name}_"));
        let has_logs = |container: &str| has_logs(&self.pod_logs, logs.as_deref(), uid, container);
        Identity::read(&json, has_logs).map_err(|source| Unnamed::Nothing { path, source })
    }

    fn find_bundle(&self, id: &str) -> Result<(PathBuf, Vec<u8>), Unnamed> {
        for dir in &self.bundle_dirs {
            for path in [dir.join(id).join("config.json"), dir.join(id).join("userdata/config.json")] {
                match read_bounded(&path) {
                    Ok(Some(json)) => return Ok((path, json)),
                    Ok(None) => return Err(Unnamed::TooLong(path)),
                    Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                    Err(source) => return Err(Unnamed::Unreadable { path, source }),
                }
            }
        }
        Err(Unnamed::NoBundle)
    }
}

/// The whole file; `None` where it is too long.
fn read_bounded(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::with_capacity(1 << 15);
    File::open(path)?.take(LONGEST_BUNDLE + 1).read_to_end(&mut text)?;
    Ok((text.len() as u64 <= LONGEST_BUNDLE).then_some(text))
}

/// Whether the pod's log directory has one for a container of this name.
fn has_logs(pod_logs: &Path, named: Option<&str>, uid: &PodUid, container: &str) -> bool {
    if !bundle::label(container) {
        return false;
    }
    let entries = std::fs::read_dir(pod_logs).into_iter().flatten().flatten();
    let mut folders = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let of_pod = |folder: &String| {
        named.is_none_or(|named| folder.starts_with(named))
            && folder.rsplit_once('_').is_some_and(|(_, text)| PodUid::parse(text).as_ref() == Some(uid))
    };
    folders.find(of_pod).is_some_and(|folder| pod_logs.join(folder).join(container).is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn uid() -> PodUid {
        PodUid::parse("0123456789abcdef0123456789abcdef").unwrap()
    }

    #[test]
    fn containerds_and_cri_os_bundles_are_found_and_read_once() {
        let dir = tempfile::tempdir().unwrap();
        for (id, file) in [("c1", "config.json"), ("c2", "userdata/config.json")] {
            let path = dir.path().join(id).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let json =
                r#"{"annotations":{"io.kubernetes.cri.container-type":"container","io.kubernetes.cri.container-name":"main"}}"#;
            fs::write(path, json).unwrap();
        }
        let mut names = Names::new(vec![dir.path().join("none"), dir.path().to_owned()], dir.path().join("logs"));
        for id in ["c1", "c2"] {
            assert_eq!(names.identity(id, &uid()).unwrap().container.as_deref(), Some("main"));
        }
        fs::remove_dir_all(dir.path().join("c1")).unwrap();
        assert!(names.identity("c1", &uid()).is_ok(), "it is remembered");
        names.keep(|id| id != "c1");
        assert!(matches!(names.identity("c1", &uid()), Err(Unnamed::NoBundle)));
    }

    #[test]
    fn a_bundle_that_cannot_be_used_is_named_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Names::new(vec![dir.path().to_owned()], dir.path().join("logs"));
        fs::create_dir(dir.path().join("c1")).unwrap();
        fs::write(dir.path().join("c1/config.json"), "not JSON").unwrap();
        assert!(names.identity("c1", &uid()).unwrap_err().to_string().contains("c1/config.json: it is no OCI bundle"));
        fs::write(dir.path().join("c1/config.json"), vec![b' '; (1 << 20) + 1]).unwrap();
        assert!(matches!(names.identity("c1", &uid()), Err(Unnamed::TooLong(_))));
        fs::remove_file(dir.path().join("c1/config.json")).unwrap();
        fs::create_dir(dir.path().join("c1/config.json")).unwrap();
        assert!(matches!(names.identity("c1", &uid()), Err(Unnamed::Unreadable { .. })));
    }

    #[test]
    fn a_pods_name_is_looked_for_once_in_a_scan() {
        let dir = tempfile::tempdir().unwrap();
        let mut names = Names::new(Vec::new(), dir.path().to_owned());
        assert_eq!(names.pod(&uid()), None);
        fs::create_dir(dir.path().join("shop_web-0_0123456789abcdef0123456789abcdef")).unwrap();
        assert_eq!(names.pod(&uid()), None);
        names.begin();
        assert_eq!(names.pod(&uid()).map(ToString::to_string).as_deref(), Some("shop/web-0"));
    }
}
