//! Containers of the node's own pods call us through a mounted directory, and are told for what they are.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use podresources_proxy::kubepods::Kubepods;
use podresources_proxy::peer::{Client, Peer, Resolver};

use crate::node::{Node, wait};
use crate::proxy::{self, Proxy};

/// Which the pod's containers call, in the folder of the proxy's own: the first is its socket.
const SOCKETS: [&str; 2] = [proxy::SOCKET, "other.sock"];

/// A static pod of two containers that call a socket in `doors` again and again, with the command itself. They write what it says there.
fn add_callers(node: &Node, name: &str, bin: &Path, doors: &Path) {
    let container = |container: &str, socket: &str| {
        let call = format!("/tool/podresources-proxy list --socket /doors/{socket} > /doors/{container}.new 2>&1");
        format!(
            "  - name: {container}
    image: docker.io/lab/busybox:1
    imagePullPolicy: Never
    command: [/bin/busybox, sh, -c, \"while :; do {call}; mv /doors/{container}.new /doors/{container}.said; sleep 0.2; done\"]
    volumeMounts:
    - {{name: tool, mountPath: /tool}}
    - {{name: lib, mountPath: /lib}}
    - {{name: lib64, mountPath: /lib64}}
    - {{name: doors, mountPath: /doors}}
"
        )
    };
    let volume = |name: &str, path: &Path| format!("  - {{name: {name}, hostPath: {{path: {}}}}}\n", path.display());
    let manifest = format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: monitoring}}
spec:
  hostNetwork: true
  terminationGracePeriodSeconds: 1
  containers:
{}{}  volumes:
{}{}{}{}",
        container("one", SOCKETS[0]),
        container("two", SOCKETS[1]),
        volume("tool", bin),
        volume("lib", Path::new("/usr/lib")),
        volume("lib64", Path::new("/usr/lib64")),
        volume("doors", doors),
    );
    node.add_manifest(name, &manifest);
}

/// The command, where a pod can mount it.
fn tool(node: &Node) -> PathBuf {
    let bin = node.scratch("tool");
    fs::copy(env!("CARGO_BIN_EXE_podresources-proxy"), bin.join("podresources-proxy")).unwrap();
    bin
}

fn accept(listener: &UnixListener, resolver: &Resolver) -> Peer {
    let (socket, _) = listener.accept().unwrap();
    resolver.resolve(socket.as_fd())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_pods_containers_are_one_client_by_name_and_a_class_of_their_namespace_holds_for_them() {
    let node = Node::start();
    let doors = node.scratch(proxy::FOLDER);
    let listeners = SOCKETS.map(|name| UnixListener::bind(doors.join(name)).unwrap());
    let resolver = Resolver::new(Kubepods { cgroup_root: "/sys/fs/cgroup".into(), pod_logs: node.pod_logs() }, Vec::new()).unwrap();
    add_callers(&node, "caller", &tool(&node), &doors);
    let (one, two) = tokio::task::block_in_place(|| (accept(&listeners[0], &resolver), accept(&listeners[1], &resolver)));
    assert!(matches!(one.client, Client::Pod { .. }), "{one:?}");
    assert_eq!(one.client, two.client);
    assert_ne!(one.container.unwrap(), two.container.unwrap());
    assert_eq!(one.pod.unwrap().to_string(), "monitoring/caller-node1");
    drop(listeners);

    // The same through the proxy, whose file shuts that namespace out, and then does no more.
    let config = node.scratch("etc").join("config.toml");
    fs::write(&config, "[[class]]\nname = \"shut\"\nnamespace = \"monitoring\"\ndeny = true\n").unwrap();
    fs::remove_file(doors.join(SOCKETS[0])).unwrap();
    let proxy = Proxy::start(&node, &["--config", config.to_str().unwrap()]).await;
    let said = || fs::read_to_string(doors.join("one.said")).unwrap_or_default();
    wait("it is refused by name", || said().contains("pod:monitoring/caller-node1 may not call here").then_some(())).await;
    fs::write(&config, "").unwrap();
    wait("it is let in", || said().contains("exclusive-node1").then_some(())).await;
    drop(proxy);
}
