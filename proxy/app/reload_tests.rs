use std::fs;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::*;
use crate::admission::{Config, Reason};
use crate::peer::Peer;

/// Rules as a number in a file: calls at once. Anything else is wrong.
fn load(file: &Path) -> Result<Loaded, String> {
    let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
    let burst = text.trim().parse().map_err(|_| format!("{text:?} is no number"))?;
    Ok(bursts_of(burst))
}

fn bursts_of(burst: u32) -> Loaded {
    let limits = Limits { rate: 0.001, burst, ..Limits::default() };
    Loaded { rulebook: Rulebook { limits, classes: Vec::new() }, shown: format!("burst = {burst}") }
}

struct Rig {
    dir: tempfile::TempDir,
    table: Arc<Table>,
    rules: Arc<InForce>,
}

impl Rig {
    fn file(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    /// Renames a file into place, as editors do.
    fn put(&self, text: &str) {
        fs::write(self.dir.path().join("new"), text).unwrap();
        fs::rename(self.dir.path().join("new"), self.file()).unwrap();
    }

    /// How many calls a new client has.
    fn burst(&self) -> usize {
        let now = Instant::now();
        let connection = self.table.join(Peer::of_uid(7), 1, now).unwrap();
        (0..1000)
            .take_while(|_| connection.call(None, now).unwrap().pay(now).map_err(|refused| refused.reason) != Err(Reason::Rate))
            .count()
    }

    async fn until(&self, what: &str, mut reached: impl FnMut(&Self) -> bool) {
        let all = async {
            while !reached(self) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_mins(1), all).await.unwrap_or_else(|_| panic!("{what}"));
    }

    /// Keeps the rules of a file while `body` runs.
    async fn run(body: impl AsyncFnOnce(&Self)) {
        let dir = tempfile::tempdir().unwrap();
        let table = Table::new(Config::default());
        let file = dir.path().join("config.toml");
        let rules = InForce::new(bursts_of(5), Some(file.clone()), &table);
        let rig = Self { dir, table, rules };
        let reload = Reload { file: file.clone(), load: Arc::new(move || load(&file)) };
        let mut hangups = signal(SignalKind::hangup()).unwrap();
        tokio::select! {
            never = keep(&rig.rules, Some(&reload), &rig.table, &mut hangups) => match never {},
            () = body(&rig) => {}
        }
    }
}

#[tokio::test]
async fn a_file_that_is_written_or_renamed_into_place_is_in_force_and_a_bad_one_keeps_the_old() {
    Rig::run(async |rig| {
        // Until the directory is watched.
        tokio::task::yield_now().await;
        assert_eq!(rig.rules.shown(), "burst = 5");
        rig.put("7");
        rig.until("renamed into place", |rig| rig.rules.reloads() == (1, 0)).await;
        fs::write(rig.file(), "9").unwrap();
        rig.until("written", |rig| rig.rules.reloads() == (2, 0)).await;
        rig.put("nine");
        rig.until("refused", |rig| rig.rules.reloads() == (2, 1)).await;
        assert_eq!(rig.rules.error().unwrap(), "\"nine\" is no number");
        assert_eq!((rig.burst(), rig.rules.shown()), (9, "burst = 9".to_owned()), "what is shown is what is in force");
        rig.put("9");
        rig.until("right again", |rig| rig.rules.error().is_none()).await;
        assert_eq!(rig.rules.reloads(), (2, 1), "the same rules are no other rules");
    })
    .await;
}

#[tokio::test]
async fn a_directory_that_is_swapped_behind_a_link_is_seen_as_in_a_mounted_config_map() {
    Rig::run(async |rig| {
        tokio::task::yield_now().await;
        let swap = |data: &str, text: &str| {
            let dir = rig.dir.path();
            fs::create_dir(dir.join(data)).unwrap();
            fs::write(dir.join(data).join("config.toml"), text).unwrap();
            std::os::unix::fs::symlink(data, dir.join("..data_tmp")).unwrap();
            fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
        };
        swap("..1", "7");
        std::os::unix::fs::symlink("..data/config.toml", rig.file()).unwrap();
        rig.until("the first", |rig| rig.rules.reloads().0 == 1).await;
        swap("..2", "8");
        rig.until("the second", |rig| rig.rules.reloads().0 == 2).await;
        assert_eq!(rig.burst(), 8);
    })
    .await;
}

#[tokio::test]
async fn a_hangup_reads_the_file_also_where_its_directory_came_later() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("later/config.toml");
    let table = Table::new(Config::default());
    let rules = InForce::new(Loaded::default(), Some(file.clone()), &table);
    let reload = Reload {
        file: file.clone(),
        load: Arc::new({
            let file = file.clone();
            move || load(&file)
        }),
    };
    let mut hangups = signal(SignalKind::hangup()).unwrap();
    let body = async {
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "3").unwrap();
        while rules.reloads().0 == 0 {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP).unwrap();
            sleep(Duration::from_millis(5)).await;
        }
        fs::write(&file, "4").unwrap();
        while rules.reloads().0 == 1 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        never = keep(&rules, Some(&reload), &table, &mut hangups) => match never {},
        done = timeout(Duration::from_mins(1), body) => done.unwrap(),
    }
}
