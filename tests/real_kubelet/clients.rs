//! Real clients, unmodified, each against the kubelet and then through us: the same codes, texts and replies.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::call;
use crate::canonical;
use crate::node::Node;
use crate::proxy::Proxy;

const NAMESPACE: &str = "default";
const POD: &str = "exclusive-node1";

/// The kubelet grants 100 calls a second to everybody, 10 at once; a client here makes 5.
const BREATH: Duration = Duration::from_millis(100);

const GRPC_GO: [&str; 5] = ["1.27.1", "1.33.3", "1.40.0", "1.79.3", "1.85.0"];

/// How grpc-go is told where to go, and what clients of the field send as `:authority`, whatever made them send it.
const GRPC_GO_FORMS: [&str; 12] = [
    "unix",
    "path",
    "passthrough",
    "authority=/var/lib/kubelet/pod-resources/kubelet.sock",
    "authority=%2Fvar%2Flib%2Fkubelet%2Fpod-resources%2Fkubelet.sock",
    "authority=var%2Flib%2Fkubelet%2Fpod-resources%2Fkubelet.sock",
    "authority=run%2Fpodresources-proxy%2Fkubelet.sock",
    "authority=var/lib/kubelet/pod-resources/kubelet.sock",
    "authority=localhost",
    "authority=[::]:50051",
    "authority=unix:///var/lib/kubelet/pod-resources/kubelet.sock",
    "authority=kubelet",
];

/// The one client that needs no program: tonic over a connector, as Kata's agent calls (see [`call::Client`]).
const TONIC: &str = "tonic";

/// A program to run with a socket's path, and the words before and after it.
struct Client {
    program: PathBuf,
    before: Vec<OsString>,
    form: Option<&'static str>,
}

/// One line of a client's output: who called what how, and how it ended.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    client: String,
    form: String,
    method: String,
    code: i64,
    text: String,
    reply: String,
}

/// Every client in every form.
fn all(bin: &Path) -> Vec<Client> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let mut clients = Vec::new();
    for version in GRPC_GO {
        let program = bin.join(format!("grpc-go-{version}"));
        clients.extend(GRPC_GO_FORMS.map(|form| Client { program: program.clone(), before: Vec::new(), form: Some(form) }));
    }
    for name in ["multus-4.0.2", "multus-4.2.2", "kubernetes-1.37.2"] {
        clients.push(Client { program: bin.join(name), before: Vec::new(), form: None });
    }
    for form in ["unix", "unix-short"] {
        let python = bin.join("python/bin/python");
        clients.push(Client { program: python, before: vec![here.join("python/client.py").into()], form: Some(form) });
        clients.push(Client { program: "node".into(), before: vec![here.join("node/client.js").into()], form: Some(form) });
    }
    let java =
        ["-cp".into(), [bin.join("java/classes"), bin.join("java/lib/*")].map(PathBuf::into_os_string).join(OsStr::new(":"))];
    clients.push(Client { program: "java".into(), before: [&java[..], &["Client".into()]].concat(), form: Some("netty") });
    clients
}

// === impl Client ===

impl Client {
    async fn run(&self, bin: &Path, socket: &Path) -> Vec<Line> {
        let mut command = Command::new(&self.program);
        command.args(&self.before).arg(socket).args(self.form).args([NAMESPACE, POD]);
        let output = command.env("NODE_PATH", bin.join("node/node_modules")).output().await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.is_empty(), "{} {:?}: {complaint}{said}", self.program.display(), self.form);
        said.lines().map(|line| Line::read(&serde_json::from_str(line).unwrap())).collect()
    }
}

// === impl Line ===

impl Line {
    fn read(line: &Value) -> Self {
        let text = |name: &str| line[name].as_str().unwrap_or_else(|| panic!("no {name} in {line}")).to_owned();
        let method = text("method");
        let path = match method.as_str() {
            "List" => Some(call::LIST),
            "GetAllocatableResources" => Some(call::ALLOCATABLE),
            "Get" => Some(call::GET),
            "v1alpha1 List" => Some(call::ALPHA_LIST),
            _ => None, // an error, or multus's own answer
        };
        let code = line["code"].as_i64().unwrap();
        let reply = text("reply");
        let reply = match path {
            Some(path) if code == 0 => canonical::text(path, &unhex(&reply)),
            _ => reply,
        };
        Self { client: text("client"), form: text("form"), method, code, text: text("text"), reply }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap()).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The five calls of every client, by tonic.
async fn tonic(socket: &Path) -> Vec<Line> {
    let mut client = call::Client::connect(socket).await;
    let mut lines = Vec::new();
    for (method, path, request) in [
        ("List", call::LIST, Vec::new()),
        ("GetAllocatableResources", call::ALLOCATABLE, Vec::new()),
        ("Get", call::GET, call::get_request(NAMESPACE, POD)),
        ("Get unknown", call::GET, call::get_request(NAMESPACE, "no-such-pod")),
        ("v1alpha1 List", call::ALPHA_LIST, Vec::new()),
    ] {
        let reply = client.call(path, request).await;
        let message = if reply.code == 0 { canonical::text(path, &reply.message) } else { String::new() };
        let (client, form) = (TONIC.to_owned(), call::ADDRESS.to_owned());
        lines.push(Line { client, form, method: method.to_owned(), code: reply.code.into(), text: reply.text, reply: message });
    }
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a real kubelet and real clients: `cargo xtask test --only kubelet`"]
async fn every_real_client_gets_from_us_what_the_kubelet_gives_it() {
    let bin = PathBuf::from(std::env::var_os("CLIENTS_BIN").expect("CLIENTS_BIN names the folder with the real clients"));
    let node = Node::start();
    let proxy = Proxy::start(&node, &[]).await;
    let mut differences = Vec::new();
    let mut seen = BTreeSet::new();
    let mut compare = |kubelet: Vec<Line>, ours: Vec<Line>| {
        for (kubelet, ours) in kubelet.iter().zip(&ours) {
            let verdict = if kubelet == ours { "same" } else { "DIFFERENT" };
            println!("{} | {} | {} | code {} | {} | {verdict}", ours.client, ours.form, ours.method, ours.code, ours.text);
            let expected = i64::from(ours.method == "Get unknown") * 2;
            assert_eq!(kubelet.code, expected, "the kubelet itself: {kubelet:?}");
            seen.insert((ours.client.clone(), ours.method.clone()));
        }
        if kubelet != ours {
            differences.push((kubelet, ours));
        }
    };
    for client in all(&bin) {
        let kubelet = client.run(&bin, &node.socket()).await;
        tokio::time::sleep(BREATH).await;
        compare(kubelet, client.run(&bin, &proxy.socket()).await);
    }
    compare(tonic(&node.socket()).await, tonic(&proxy.socket()).await);
    assert!(differences.is_empty(), "{differences:#?}");
    // 5 grpc-go, grpcio, grpc-js, grpc-java and tonic with 5 methods each, both multus with one, Kubernetes' own with 4 and 1.
    assert_eq!(seen.len(), 9 * 5 + 2 + 5, "{seen:#?}");
}
