//! The proxy is killed while the kubelet is down: the next one answers from what the first has saved, or says why it does not.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use podresources_proxy::grpc::Code;
use podresources_proxy::proto::v1::{ListPodResourcesResponse, PodResources};
use podresources_proxy::simulate::{Simulator, Stage};
use prost::Message as _;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::client::{ALLOCATABLE, ALPHA_LIST, GET, LIST, Reply};
use crate::harness::{Place, Proxy, eventually, of_pod, with};

const METHODS: [&str; 3] = [LIST, ALLOCATABLE, ALPHA_LIST];

/// A proxy that has saved what the kubelet told it; the kubelet is down and the proxy was killed.
struct Killed {
    place: Place,
    kubelet: Simulator,
    /// The replies to [`METHODS`].
    good: Vec<Reply>,
    /// From before the first capture to after the last one.
    captured: (Instant, Instant),
}

impl Killed {
    async fn new() -> Self {
        let place = Place::new();
        let kubelet = place.simulator(|config| config.pods = 20).await;
        let start = Instant::now();
        let mut proxy = place.start(&["--refresh-interval", "100ms"]).await;
        proxy.ready().await;
        let mut good = Vec::new();
        for method in METHODS {
            good.push(place.call(method, |_| {}).await);
        }
        // A capture and a save that begin from here on are of all three.
        let saves = || async { metric(&proxy, "saves_total{what=\"age\"}").await };
        let before = saves().await;
        eventually("all of it is saved", async || saves().await > before).await;
        kubelet.stop().await;
        let end = Instant::now();
        proxy.signal(Signal::KILL);
        proxy.ended().await;
        Self { place, kubelet, good, captured: (start, end) }
    }

    /// Those of the last good List.
    fn pods(&self) -> Vec<PodResources> {
        ListPodResourcesResponse::decode(self.good[0].body.slice(5..)).unwrap().pod_resources
    }

    fn file(&self) -> PathBuf {
        self.place.path("state/snapshot")
    }

    /// Starts another proxy, to which clients come at once.
    async fn again(&self, flags: &[&str]) -> Proxy {
        self.again_by(self.place.run(flags)).await
    }

    async fn again_by(&self, command: Command) -> Proxy {
        let proxy = self.place.spawn(command);
        // The killed one has left its socket.
        eventually("somebody listens", async || UnixStream::connect(self.place.listen()).is_ok()).await;
        proxy
    }

    /// Another proxy must not use what is there, and say this.
    async fn assert_not_used(&self, proxy: &Proxy, why: &str) {
        let (code, text) = self.place.call(LIST, with("grpc-timeout", "500m")).await.error();
        assert_eq!(code, Code::Unavailable);
        assert!(text.contains("nobody listens on "), "{text}");
        let log = proxy.log();
        assert_eq!(log.matches("the saved snapshot is not used").count(), 1, "{log}");
        assert_eq!(log.matches(why).count(), 1, "{why:?} in\n{log}");
        assert!(proxy.admin("/status").await.contains(why));
    }
}

async fn metric(proxy: &Proxy, name: &str) -> u64 {
    let metrics = proxy.admin("/metrics").await;
    let sample = metrics.lines().find_map(|line| line.strip_prefix("podresources_proxy_")?.strip_prefix(name));
    sample.unwrap_or_else(|| panic!("{name} in {metrics}")).trim().parse().unwrap()
}

fn age(reply: &Reply) -> Duration {
    Duration::from_secs_f64(reply.headers["podresources-age"].to_str().unwrap().parse().unwrap())
}

#[tokio::test]
async fn after_kill_9_with_the_kubelet_down_clients_get_the_last_good_answer_marked_and_with_its_true_age() {
    let killed = Killed::new().await;
    let proxy = killed.again(&["--max-stale", "1h"]).await;
    for (method, good) in METHODS.into_iter().zip(&killed.good) {
        // The capture began before the kubelet was stopped.
        let least = killed.captured.1.elapsed();
        let reply = killed.place.call(method, |_| {}).await;
        let most = killed.captured.0.elapsed();
        reply.assert_ok(&good.body);
        assert_eq!(reply.headers["podresources-stale"], "true", "{method}");
        let (age, told_to) = (age(&reply), Duration::from_millis(1));
        assert!(age + told_to > least && age <= most, "{method}: {age:?} is not within {least:?} and {most:?}");
    }
    let known = killed.pods().remove(0);
    let pod = killed.place.call(GET, of_pod(&known.namespace, &known.name)).await;
    pod.assert_ok(&pod.body);
    assert_eq!(pod.headers["podresources-stale"], "true");
    let (code, text) = killed.place.call(GET, of_pod("nowhere", "nobody")).await.error();
    assert_eq!(code, Code::Unavailable, "{text}");
    let said = "answers come from a snapshot that an earlier instance saved, ";
    eventually("readiness says so", async || proxy.admin("/readyz").await.contains(said)).await;
    assert!(proxy.admin("/status").await.contains(r#""saved_earlier": true"#));

    // The kubelet is back, and whole: nothing saved is given any more.
    killed.kubelet.start_again().await.unwrap();
    killed.kubelet.reach(Stage::Whole).await;
    proxy.ready().await;
    let fresh = killed.place.call(LIST, |_| {}).await;
    fresh.assert_ok(&fresh.body);
    assert!(!fresh.headers.contains_key("podresources-stale"));
    proxy.stop().await;
}

#[tokio::test]
async fn what_was_saved_is_given_within_max_stale_of_its_capture_and_then_refused() {
    let killed = Killed::new().await;
    // It is asked again as fast as it answers: a quick machine would be refused for that before the age is.
    let proxy = killed.again(&["--max-stale", "3s", "--admission", "off"]).await;
    let mut given = 0;
    let mut refused = None;
    eventually("--max-stale is over", async || {
        let reply = killed.place.call(LIST, |_| {}).await;
        if reply.body.is_empty() {
            refused = Some(reply.error());
            return true;
        }
        assert!(age(&reply) <= Duration::from_secs(3));
        assert_eq!(reply.headers["podresources-stale"], "true");
        given += 1;
        false
    })
    .await;
    let (code, text) = refused.unwrap();
    assert_eq!(code, Code::Unavailable);
    let said = proxy.log().contains("it is ") && proxy.log().contains("old, longer than --max-stale 3s");
    // A slow machine may let it grow too old before the start, or between the start and the first call.
    if !said {
        assert!(text.contains("and what an earlier instance saved is "), "{given} given, then {text}\n{}", proxy.log());
        assert!(text.contains("old, longer than --max-stale 3s: nobody listens on "), "{text}");
    }
    proxy.stop().await;
}

#[tokio::test]
async fn a_kubelet_that_comes_back_with_a_short_list_is_completed_by_what_was_saved() {
    let killed = Killed::new().await;
    let proxy = killed.again(&["--max-stale", "1h"]).await;
    // It knows only static pods until it has heard from the API server.
    killed.kubelet.start_again().await.unwrap();
    proxy.ready().await;
    let list = killed.place.call(LIST, |_| {}).await;
    assert!(!list.headers.contains_key("podresources-stale"));
    let pods = ListPodResourcesResponse::decode(list.body.slice(5..)).unwrap().pod_resources.len();
    assert_eq!(pods, killed.pods().len());
    proxy.stop().await;
}

#[tokio::test]
async fn a_corrupted_file_is_not_used_and_its_place_is_taken_once_there_is_something_to_save() {
    let killed = Killed::new().await;
    let file = File::options().read(true).write(true).open(killed.file()).unwrap();
    let at = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let proxy = killed.again(&["--max-stale", "1h"]).await;
    killed.assert_not_used(&proxy, "its checksum does not match").await;
    killed.kubelet.start_again().await.unwrap();
    eventually("it is saved again", async || metric(&proxy, "saves_total{what=\"snapshot\"}").await > 0).await;
    proxy.stop().await;
}

#[tokio::test]
async fn a_foreign_file_is_not_used_and_never_touched() {
    let killed = Killed::new().await;
    fs::write(killed.file(), "something that somebody needs\n").unwrap();
    let proxy = killed.again(&["--max-stale", "1h"]).await;
    killed.assert_not_used(&proxy, "it is no saved snapshot of podresources-proxy; it is left as it is").await;
    killed.kubelet.start_again().await.unwrap();
    proxy.ready().await;
    eventually("that it cannot be saved is told", async || metric(&proxy, "saves_failed_total").await > 0).await;
    assert_eq!(proxy.log().matches("the snapshot cannot be saved").count(), 1);
    proxy.stop().await;
    assert_eq!(fs::read_to_string(killed.file()).unwrap(), "something that somebody needs\n");
}

/// Whether there is root, who alone can mount; without it says so, and fails where `CI` is set.
fn can_mount(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(root || std::env::var_os("CI").is_none(), "{test} needs root");
    if !root {
        eprintln!("not run: {test} needs root");
    }
    root
}

/// The same program with something mounted before, which nobody else sees. `$0` in the script is `place`.
fn mounted(script: &str, place: &Path, command: &Command) -> Command {
    let mut mounted = Command::new("unshare");
    mounted.args(["--mount", "sh", "-c", &format!("{script} && exec \"$@\"")]).arg(place).arg(command.get_program());
    mounted.args(command.get_args()).envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    mounted
}

#[tokio::test]
async fn after_a_reboot_nothing_of_it_is_used() {
    if !can_mount("after_a_reboot_nothing_of_it_is_used") {
        return;
    }
    let killed = Killed::new().await;
    fs::write(killed.place.path("boot"), "01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id";
    let rebooted = mounted(script, &killed.place.path("boot"), &killed.place.run(&["--max-stale", "1h"]));
    let proxy = killed.again_by(rebooted).await;
    killed.assert_not_used(&proxy, "it was saved before this boot").await;
    proxy.stop().await;
}

#[tokio::test]
async fn a_full_disk_is_told_once_and_counted_and_all_else_goes_on() {
    if !can_mount("a_full_disk_is_told_once_and_counted_and_all_else_goes_on") {
        return;
    }
    let place = Place::new();
    let kubelet = place.simulator(|config| config.pods = 110).await;
    fs::create_dir(place.path("state")).unwrap();
    let script = "mount -t tmpfs -o size=4k,mode=0700 tmpfs \"$0\"";
    let proxy = place.spawn(mounted(script, &place.path("state"), &place.run(&[])));
    proxy.ready().await;
    eventually("it fails", async || metric(&proxy, "saves_failed_total").await > 0).await;
    // It is tried again ten seconds later.
    eventually("it fails again", async || metric(&proxy, "saves_failed_total").await > 1).await;
    kubelet.add_some_pod().await.unwrap();
    let list = place.call(LIST, |_| {}).await;
    assert_eq!(ListPodResourcesResponse::decode(list.body.slice(5..)).unwrap().pod_resources.len(), 111);
    let log = proxy.log();
    assert_eq!(log.matches("the snapshot cannot be saved").count(), 1, "{log}");
    assert!(log.contains("No space left on device") && proxy.admin("/status").await.contains("No space left on device"), "{log}");
    proxy.stop().await;
}
