//! Saving and reading back, in real directories. What time and boot are is handed in.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use prost::Message;
use tempfile::TempDir;

use super::error::NotOurs;
use super::*;
use crate::proto::v1;

const MAX_STALE: Duration = Duration::from_mins(5);

/// A state directory, and a clock that stands still.
struct Place {
    root: TempDir,
    now: Stamp,
    instant: Instant,
}

fn seconds(seconds: u64) -> Stamp {
    Stamp::from_nanos(seconds * 1_000_000_000)
}

fn list(pod: &str) -> Arc<PodList> {
    let pod = v1::PodResources { name: pod.to_owned(), namespace: "ns".to_owned(), ..Default::default() };
    Arc::new(PodList::build(&v1::ListPodResourcesResponse { pod_resources: vec![pod] }.encode_to_vec()).unwrap())
}

fn offer(pod: &str, at: Stamp) -> Offer {
    let allocatable = v1::AllocatableResourcesResponse { cpu_ids: vec![1, 2], ..Default::default() };
    let allocatable = Arc::new(Allocatable::build(&allocatable.encode_to_vec()).unwrap());
    let stamps = Stamps { list: at, allocatable: seconds(at.as_nanos() / 1_000_000_000 - 1), alpha: Stamp::default() };
    Offer { list: list(pod), allocatable: Some(allocatable), alpha: None, stamps, server: Some("1:2:3".into()) }
}

impl Place {
    fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), now: seconds(1_000), instant: Instant::now() + Duration::from_secs(2_000) }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("state")
    }

    fn file(&self) -> PathBuf {
        self.dir().join("snapshot")
    }

    fn store(&self) -> Store {
        Store::open(&self.dir(), Path::new("/kubelet.sock"), 1 << 20).unwrap()
    }

    fn load_by(&self, store: &mut Store) -> Result<Option<Saved>, NotUsed> {
        store.load(self.now, self.instant, MAX_STALE)
    }

    fn load(&self) -> Result<Option<Saved>, NotUsed> {
        self.load_by(&mut self.store())
    }

    /// Something good is there, written at `at`.
    fn saved(at: Stamp) -> Self {
        let place = Self::new();
        place.store().write(&offer("a", at)).unwrap();
        place
    }
}

#[test]
fn what_was_saved_is_read_with_its_age() {
    let place = Place::saved(seconds(990));
    let saved = place.load().unwrap().unwrap();
    let offered = offer("a", seconds(990));
    assert_eq!(saved.list.content.message(), offered.list.message());
    assert_eq!(place.instant - saved.list.begun, Duration::from_secs(10));
    let allocatable = saved.allocatable.unwrap();
    assert_eq!(allocatable.content.message(), offered.allocatable.unwrap().message());
    assert_eq!(place.instant - allocatable.begun, Duration::from_secs(11));
    assert!(saved.alpha.is_none());
    assert_eq!((saved.stamps, saved.server), (offered.stamps, offered.server));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&place.dir()), mode(&place.file())), (0o700, 0o600));
    assert_eq!(fs::read_dir(place.dir()).unwrap().count(), 1, "nothing else is left there");
}

#[test]
fn a_capture_of_the_same_content_makes_it_younger_and_writes_nothing_else() {
    let place = Place::new();
    let mut store = place.store();
    let first = offer("a", seconds(900));
    assert!(!store.confirm(first.stamps).unwrap(), "nothing is there that could be confirmed");
    store.write(&first).unwrap();
    let before = fs::metadata(place.file()).unwrap().len();
    assert!(store.confirm(offer("a", seconds(999)).stamps).unwrap());
    assert_eq!(fs::metadata(place.file()).unwrap().len(), before);
    let saved = place.load().unwrap().unwrap();
    assert_eq!(place.instant - saved.list.begun, Duration::from_secs(1));
    fs::remove_file(place.file()).unwrap();
    assert!(!store.confirm(first.stamps).unwrap(), "somebody has removed it");
}

#[test]
fn nothing_there_is_nothing_and_no_error() {
    assert!(Place::new().load().unwrap().is_none());
}

#[test]
fn of_another_boot_kubelet_or_time_nothing_is_used() {
    let place = Place::saved(seconds(990));
    let mut store = place.store();
    store.set_boot("another");
    assert!(matches!(place.load_by(&mut store), Err(NotUsed::Boot)));
    let mut store = Store::open(&place.dir(), Path::new("/other.sock"), 1 << 20).unwrap();
    let error = place.load_by(&mut store).unwrap_err().to_string();
    assert_eq!(error, "it holds replies of /kubelet.sock, and --kubelet-socket is /other.sock");
    let error = Place::saved(seconds(1_003)).load().unwrap_err().to_string();
    assert_eq!(error, "it was saved 3s from now by the clock since the boot, which cannot be");
    let error = Place::saved(seconds(699)).load().unwrap_err().to_string();
    assert_eq!(error, "it is 5m 1s old, longer than --max-stale 5m");
    assert!(Place::saved(seconds(700)).load().unwrap().is_some());
}

#[test]
fn whatever_byte_is_changed_or_missing_nothing_is_used_and_the_file_stays() {
    let place = Place::saved(seconds(990));
    let good = fs::read(place.file()).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        for bad in [&bad, &good[..at]] {
            fs::write(place.file(), bad).unwrap();
            assert!(place.load().is_err(), "byte {at}");
            assert_eq!(fs::read(place.file()).unwrap(), *bad);
        }
    }
}

#[test]
fn a_file_that_is_not_ours_is_not_used_and_never_written_over() {
    let foreign = |make: &dyn Fn(&Place)| {
        let place = Place::new();
        drop(place.store());
        make(&place);
        let mut store = place.store();
        let why = place.load_by(&mut store).unwrap_err();
        let before = fs::symlink_metadata(place.file()).unwrap();
        assert!(matches!(store.write(&offer("a", place.now)), Err(WriteError::NotOurs { .. })));
        assert_eq!(fs::symlink_metadata(place.file()).unwrap().modified().unwrap(), before.modified().unwrap());
        match why {
            NotUsed::NotOurs(why) => why,
            other => panic!("{other}"),
        }
    };
    let content = |place: &Place, mode| {
        fs::write(place.file(), "#!/bin/sh\n").unwrap();
        fs::set_permissions(place.file(), Permissions::from_mode(mode)).unwrap();
    };
    assert!(matches!(foreign(&|place| content(place, 0o600)), NotOurs::Content));
    assert!(matches!(foreign(&|place| content(place, 0o640)), NotOurs::Mode { mode: 0o640 }));
    assert!(matches!(foreign(&|place| fs::create_dir(place.file()).unwrap()), NotOurs::Kind));
    assert!(matches!(foreign(&|place| symlink("/etc/passwd", place.file()).unwrap()), NotOurs::Kind));
    let pipe =
        |place: &Place| rustix::fs::mknodat(rustix::fs::CWD, place.file(), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert!(matches!(foreign(&pipe), NotOurs::Kind), "and opening it did not wait");
    let huge = |place: &Place| {
        let file = fs::File::create(place.file()).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        file.set_len(1 << 40).unwrap();
    };
    assert!(matches!(foreign(&huge), NotOurs::TooLarge { .. }));
}

#[test]
fn one_that_cannot_be_used_and_is_ours_is_replaced() {
    let place = Place::saved(seconds(990));
    let whole = fs::read(place.file()).unwrap();
    fs::write(place.file(), &whole[..whole.len() - 1]).unwrap();
    let mut store = place.store();
    assert!(place.load_by(&mut store).is_err());
    store.write(&offer("b", seconds(995))).unwrap();
    assert!(place.load().unwrap().is_some());
}

#[test]
fn a_directory_that_others_may_enter_or_that_is_none_is_refused_and_one_that_cannot_be_made_is_only_missed() {
    let open = |place: &Place| Store::open(&place.dir(), Path::new("/k"), 1).unwrap_err();
    let place = Place::new();
    drop(place.store());
    fs::set_permissions(place.dir(), Permissions::from_mode(0o750)).unwrap();
    let error = open(&place);
    assert!(error.is_unsafe() && error.to_string().contains("has mode 0750"), "{error}");
    let place = Place::new();
    symlink("/tmp", place.dir()).unwrap();
    assert!(matches!(open(&place), DirError::NotADirectory { .. }));
    let place = Place::new();
    fs::write(place.dir(), "").unwrap();
    assert!(matches!(open(&place), DirError::NotADirectory { .. }));
    let error = Store::open(Path::new("/proc/nonexistent/state"), Path::new("/k"), 1).unwrap_err();
    assert!(
        !error.is_unsafe() && error.to_string().starts_with("cannot make the state directory /proc/nonexistent/state"),
        "{error}"
    );
}

#[test]
fn of_two_instances_that_run_at_once_one_writes_until_it_ends() {
    let place = Place::new();
    let (mut old, mut new) = (place.store(), place.store());
    old.write(&offer("a", seconds(990))).unwrap();
    assert!(matches!(new.write(&offer("b", seconds(991))), Err(WriteError::Busy { .. })));
    drop(old);
    new.write(&offer("b", seconds(992))).unwrap();
}

/// A writer at work in virtual time; each write is counted.
fn write_while<F: Future<Output = ()>>(place: &Place, test: impl FnOnce(Keeper, Arc<Report>) -> F) {
    let report = Arc::new(Report::at(place.dir()));
    let (offers, taken) = watch::channel(None);
    let mut writer = Writer::new(place.store(), taken, report.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        tokio::select! {
            () = writer.run() => panic!("the writer has ended"),
            () = test(Keeper { offers }, report) => {}
        }
    });
    writer.flush();
}

const MOMENT: Duration = Duration::from_millis(1);

#[test]
fn a_burst_of_changes_is_one_write_a_second_and_the_last_one_is_written() {
    let place = Place::new();
    write_while(&place, async |keeper, report| {
        for change in 0..30 {
            keeper.offer(offer(&format!("pod-{change}"), seconds(900 + change)));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!((report.snapshots_written(), report.ages_written()), (4, 0));
    });
    let saved = place.load().unwrap().unwrap();
    assert_eq!(saved.list.content.message(), list("pod-29").message());
}

#[test]
fn on_a_quiet_node_only_the_age_is_written_and_not_often() {
    let place = Place::new();
    write_while(&place, async |keeper, report| {
        for capture in 0..3_600 {
            keeper.offer(offer("a", seconds(1_000 + capture)));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(report.snapshots_written(), 1);
        assert!((600..=720).contains(&report.ages_written()), "{}", report.ages_written());
    });
    // What was not written yet is written at the end.
    let place = Place { now: seconds(4_600), ..place };
    assert_eq!(place.instant - place.load().unwrap().unwrap().list.begun, Duration::from_secs(1));
}

#[test]
fn what_cannot_be_written_is_told_tried_again_and_then_written() {
    let place = Place::new();
    drop(place.store());
    // The leftover's name is taken by what cannot be unlinked.
    fs::create_dir(place.dir().join("snapshot.new")).unwrap();
    write_while(&place, async |keeper, report| {
        keeper.offer(offer("a", seconds(990)));
        tokio::time::sleep(MOMENT).await;
        let error = report.told().error.unwrap();
        assert!(error.starts_with("cannot remove the leftover "), "{error}");
        assert_eq!((report.failures(), report.snapshots_written()), (1, 0));
        tokio::time::sleep(Duration::from_secs(25)).await;
        assert_eq!(report.failures(), 3, "every ten seconds");
        fs::remove_dir(place.dir().join("snapshot.new")).unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!((report.told().error, report.snapshots_written()), (None, 1));
    });
    assert!(place.load().unwrap().is_some());
}
