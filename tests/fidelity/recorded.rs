//! Recorded replies and recorded clients: byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use podresources_proxy::grpc::frame_message;
use podresources_proxy::proto::v1;
use podresources_proxy::simulate::{Method, Simulator};
use prost::Message as _;
use prost::encoding::{decode_key, decode_varint};

use crate::client::{ALLOCATABLE, ALPHA_LIST, GET, LIST};
use crate::frames::{call, greeting, replay};
use crate::harness::{Place, Proxy, of_pod};

/// What one recorded node answers, by method.
type Node = BTreeMap<&'static str, Bytes>;

fn cases(kind: &str) -> impl Iterator<Item = (String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(kind);
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap()))
}

/// The recorded nodes by name, and how many replies they have together.
fn nodes() -> (BTreeMap<String, Node>, usize) {
    let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
    let mut replies = 0;
    for (name, content) in cases("kubelet") {
        let Some(case) = name.strip_suffix(".hex") else { continue };
        // The longer prefix first.
        let methods = [("list-v1alpha1-", ALPHA_LIST), ("list-", LIST), ("alloc-", ALLOCATABLE)];
        let (method, node) = methods.iter().find_map(|(prefix, method)| Some((*method, case.strip_prefix(prefix)?))).unwrap();
        let digits: Vec<u32> = content.iter().filter_map(|byte| char::from(*byte).to_digit(16)).collect();
        let bytes = digits.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap()).collect();
        nodes.entry(node.to_owned()).or_default().insert(method, bytes);
        replies += 1;
    }
    (nodes, replies)
}

/// Each pod of a List reply: namespace, name, and the bytes of the message that a Get of it must bring.
fn slices(list: &Bytes) -> Vec<(String, String, Bytes)> {
    let mut slices = Vec::new();
    let mut rest = list.clone();
    while !rest.is_empty() {
        let field = rest.clone();
        let (tag, _) = decode_key(&mut rest).unwrap();
        assert_eq!(tag, 1, "the one field of a List reply");
        let len = usize::try_from(decode_varint(&mut rest).unwrap()).unwrap();
        let pod = v1::PodResources::decode(rest.split_to(len)).unwrap();
        slices.push((pod.namespace, pod.name, field.slice(..field.len() - rest.len())));
    }
    slices
}

async fn serving(place: &Place, node: &Node) -> (Simulator, Proxy) {
    let kubelet = place.simulator(|config| config.pods = 0).await;
    for (path, message) in node {
        let method = Method::ALL.into_iter().find(|method| method.path() == *path).unwrap();
        kubelet.set_reply(method, Some(message.clone()));
    }
    (kubelet, place.start(&[]).await)
}

#[tokio::test]
async fn every_recorded_reply_goes_out_byte_for_byte_and_each_pods_get_is_its_slice() {
    let (nodes, replies) = nodes();
    let mut served = 0;
    for (name, node) in nodes {
        let place = Place::new();
        let (kubelet, proxy) = serving(&place, &node).await;
        for (method, message) in &node {
            place.call(method, |_| {}).await.assert_ok(&frame_message(message).unwrap());
            served += 1;
        }
        for (namespace, pod, slice) in node.get(LIST).map(slices).unwrap_or_default() {
            place.call(GET, of_pod(&namespace, &pod)).await.assert_ok(&frame_message(&slice).unwrap());
        }
        assert_eq!(kubelet.calls(Method::Get), 0, "{name}: a Get was not answered from the snapshot");
        proxy.stop().await;
    }
    assert!(served == replies && replies >= 11, "{served} of {replies} recorded replies were served");
}

/// The count of good answers by the proxy's own account: `grpc-status: 0` stands in the trailers, in Huffman code.
async fn answered(proxy: &Proxy) -> u64 {
    let metrics = proxy.admin("/metrics").await;
    let good = metrics.lines().filter(|line| line.contains("_requests_total{") && line.contains("code=\"OK\""));
    good.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[tokio::test]
async fn every_recorded_client_gets_status_zero_and_the_whole_reply() {
    let mut nodes = nodes().0;
    let mut node = nodes.remove("1.36.2-host-100pods").unwrap();
    node.extend(nodes.remove("1.36.2-host").unwrap().remove_entry(ALPHA_LIST));
    let place = Place::new();
    let (_kubelet, proxy) = serving(&place, &node).await;
    proxy.ready().await;
    let mut replayed = 0;
    for (name, recording) in cases("clients").filter(|(name, _)| Path::new(name).extension().is_some_and(|it| it == "bin")) {
        // A client of Kubernetes 1.20 that asks for v1alpha1.
        let asked = if name == "5.bin" { ALPHA_LIST } else { LIST };
        let data = replay(&place.listen(), &recording, &name).await;
        assert!(data == frame_message(&node[asked]).unwrap(), "{name} got {} bytes", data.len());
        replayed += 1;
        assert_eq!(answered(&proxy).await, replayed, "{name}");
    }
    assert!(replayed >= 9, "only {replayed} recordings found");
    proxy.stop().await;
}

#[tokio::test]
async fn every_authority_that_clients_send_gets_its_answer() {
    let node = nodes().0.remove("1.36.2-vm-2numa").unwrap();
    let place = Place::new();
    let (_kubelet, proxy) = serving(&place, &node).await;
    proxy.ready().await;
    let authorities = [
        "localhost",
        "%2Fvar%2Flib%2Fkubelet%2Fpod-resources%2Fkubelet.sock",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        "var%2Flib%2Fkubelet%2Fpod-resources%2Fkubelet.sock",
        "run%2Fpodresources-proxy%2Fkubelet.sock",
        "[::]:50051",
    ];
    let mut good = 0;
    for authority in authorities {
        for method in [LIST, ALLOCATABLE] {
            let data = replay(&place.listen(), &[greeting(), call(1, method, authority)].concat(), authority).await;
            assert!(data == frame_message(&node[method]).unwrap(), "{method} with {authority:?} got {} bytes", data.len());
            good += 1;
            assert_eq!(answered(&proxy).await, good, "{method} with {authority:?}");
        }
    }
    proxy.stop().await;
}
