//! The proxy is killed while the kubelet is down: the next one answers from what the first has saved, or says why it does not.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
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
        let proxy = self.place.start(flags).await;
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
        let reply = killed.place.call(method, |_| {}).await;
        let (least, most) = (killed.captured.1.elapsed(), killed.captured.0.elapsed());
        reply.assert_ok(&good.body);
        assert_eq!(reply.headers["podresources-stale"], "true", "{method}");
        // The capture began before the kubelet was stopped; the call came later than `least` was measured from.
        let age = age(&reply);
        assert!(age <= most && age + Duration::from_secs(1) >= least, "{method}: {age:?} is not within {least:?} and {most:?}");
    }
    let known = killed.pods().remove(0);
    let pod = killed.place.call(GET, of_pod(&known.namespace, &known.name)).await;
    pod.assert_ok(&pod.body);
    assert_eq!(pod.headers["podresources-stale"], "true");
    let (code, text) = killed.place.call(GET, of_pod("nowhere", "nobody")).await.error();
    assert_eq!(code, Code::Unavailable, "{text}");
    let readiness = proxy.admin("/readyz").await;
    assert!(readiness.contains("answers come from a snapshot that an earlier instance saved, "), "{readiness}");
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
