//! Bytes given by hand go out as they are.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::*;

/// Bytes of a `*.hex` file.
fn hex(path: &Path) -> Bytes {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.trim();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// The cases whose name begins so; at least one.
fn named(prefix: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(cases()).unwrap().map(|entry| entry.unwrap().path());
    let found: Vec<_> = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix)).collect();
    assert!(!found.is_empty(), "no case begins with {prefix}");
    found
}

#[tokio::test]
async fn a_recorded_list_is_served_byte_for_byte_from_hex_and_from_bytes() {
    for case in named("list-1.") {
        let recorded = hex(&case);
        let lab = Lab::start(|config| config.from = Some(case.clone())).await;
        assert_eq!(lab.client().await.ask(Method::List).await.message(), recorded, "{}", case.display());

        let raw = lab.dir.path().join("list.bin");
        std::fs::write(&raw, &recorded).unwrap();
        let lab = Lab::start(|config| config.from = Some(raw)).await;
        assert_eq!(lab.client().await.ask(Method::List).await.message(), recorded, "{}", case.display());
    }
}

#[tokio::test]
async fn every_pod_of_a_recorded_list_can_be_got_and_the_gets_together_are_the_list() {
    for case in named("list-1.") {
        let lab = Lab::start(|config| config.from = Some(case.clone())).await;
        let mut client = lab.client().await;
        let mut together = Vec::new();
        for pod in client.list().await.pod_resources {
            together.extend(client.get(&pod.namespace, &pod.name).await.message());
        }
        assert_eq!(together, hex(&case), "{}", case.display());
        assert!(matches!(client.get("nowhere", "nobody").await, Outcome::Status(Code::Unknown, _)));
    }
}

#[tokio::test]
async fn the_other_methods_follow_from_a_recorded_list() {
    let lab = Lab::start(|config| config.from = Some(cases().join("list-1.36.2-vm-2numa.hex"))).await;
    let mut client = lab.client().await;
    let allocatable = client.allocatable().await;
    assert_eq!((allocatable.cpu_ids, allocatable.devices.len()), (vec![1, 2], 2));
    let alpha: crate::proto::v1alpha1::ListPodResourcesResponse = client.ask(Method::AlphaList).await.decode();
    assert_eq!(alpha.pod_resources.len(), 3);
}

#[tokio::test]
async fn bytes_set_by_hand_are_served_byte_for_byte_by_each_method() {
    let lab = Lab::start(|_| {}).await;
    let mut client = lab.client().await;
    for case in named("alloc-") {
        lab.sim.set_allocatable(hex(&case));
        assert_eq!(client.ask(Method::Allocatable).await.message(), hex(&case), "{}", case.display());
    }
    for case in named("list-v1alpha1-") {
        lab.sim.set_reply(Method::AlphaList, Some(hex(&case)));
        assert_eq!(client.ask(Method::AlphaList).await.message(), hex(&case), "{}", case.display());
    }
    lab.sim.set_list(Bytes::from_static(b"not protobuf at all"));
    assert_eq!(client.ask(Method::List).await.message(), "not protobuf at all");
    assert!(matches!(client.get("default", "any").await, Outcome::Status(Code::Unknown, _)));
    lab.sim.set_reply(Method::List, None);
    assert_eq!(client.list().await.pod_resources.len(), 110);
}

#[tokio::test]
async fn real_clients_of_every_age_get_their_reply() {
    let lab = Lab::start(|_| {}).await;
    lab.sim.set_list(Bytes::from_static(b"the whole reply"));
    lab.sim.set_reply(Method::AlphaList, Some(Bytes::from_static(b"the whole reply")));
    let mut replayed = 0;
    for case in std::fs::read_dir(cases().with_file_name("clients")).unwrap().map(|entry| entry.unwrap().path()) {
        if case.extension().is_none_or(|extension| extension != "bin") {
            continue;
        }
        let mut stream = UnixStream::connect(lab.sim.socket()).await.unwrap();
        stream.write_all(&std::fs::read(&case).unwrap()).await.unwrap();
        let (mut seen, mut chunk) = (Vec::new(), [0; 4096]);
        while !seen.windows(15).any(|bytes| bytes == b"the whole reply") {
            let len = timeout(Duration::from_secs(10), stream.read(&mut chunk)).await.expect("an answer").unwrap();
            assert_ne!(len, 0, "{}: the connection ends without the reply", case.display());
            seen.extend_from_slice(&chunk[..len]);
        }
        replayed += 1;
    }
    assert!(replayed >= 9, "{replayed} recorded clients were there");
}

#[tokio::test]
async fn a_file_that_is_no_list_reply_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("words.txt");
    let start = async || {
        let config = Config { from: Some(file.clone()), ..Config::at(dir.path().join("kubelet.sock")) };
        Simulator::start(config).await.err().unwrap().to_string()
    };
    assert!(start().await.starts_with("cannot read the recorded reply"));
    std::fs::write(&file, "no reply").unwrap();
    let error = start().await;
    assert!(error.contains("words.txt holds no List reply: give the message without its gRPC prefix"), "{error}");
}
