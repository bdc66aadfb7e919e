//! A node with a control plane: pods by the API server, claims by a DRA driver.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use http::Method;
use podresources_proxy::admin;
use serde_json::{Value, json};

use crate::node::{Node, wait};

/// What a pod asks for, beside one CPU of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) devices: usize,
    /// A device by a claim, from the DRA driver.
    pub(crate) claim: bool,
}

/// Taken down when it is dropped.
pub(crate) struct Cluster {
    pub(crate) node: Node,
    /// Where the API server is spoken to, without keys.
    api: PathBuf,
    inside: Vec<Child>,
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const LOOK_EVERY: Duration = Duration::from_millis(10);

// === impl Cluster ===

impl Cluster {
    /// With a DRA driver that takes up to `delay` for each claim. Returns when pods can be made.
    pub(crate) async fn start(delay: &str) -> Self {
        let node = Node::start_in_cluster();
        let folder = node.folder().to_owned();
        let (api, kubeconfig) = (folder.join("api.sock"), folder.join("admin.kubeconfig"));
        let log = |name: &str| File::create(folder.join("out").join(name)).unwrap();
        let mut proxy = node.inside("kube");
        proxy.arg("kubectl").arg("--kubeconfig").arg(&kubeconfig).arg("proxy").arg("--unix-socket").arg(&api);
        let mut driver = node.inside("dradriver");
        driver.arg(&kubeconfig).arg(delay);
        let inside = [(proxy, "api.log"), (driver, "dradriver.log")]
            .map(|(mut command, name)| command.stdout(log(name)).stderr(log(name)).spawn().unwrap());
        let cluster = Self { node, api, inside: inside.into() };
        wait("the API server can be spoken to", || cluster.api.exists().then_some(())).await;
        let said = || fs::read_to_string(folder.join("out/dradriver.log")).unwrap_or_default();
        wait("the DRA driver has told of its devices", || said().contains("published").then_some(())).await;
        cluster.allow_claims().await;
        cluster
            .until("the namespace has its service account", "/api/v1/namespaces/default/serviceaccounts/default", |found| found)
            .await;
        cluster
    }

    async fn allow_claims(&self) {
        let class = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "lab"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'lab.example.com'"}}]},
        });
        let template = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "one"},
            "spec": {"spec": {"devices": {"requests": [{"name": "dev", "exactly": {"deviceClassName": "lab"}}]}}},
        });
        self.create("/apis/resource.k8s.io/v1/deviceclasses", &class).await;
        self.create("/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates", &template).await;
    }

    /// Makes a pod of one container. It waits for nothing.
    pub(crate) async fn add_pod(&self, name: &str, wanted: Wanted) {
        let amounts = json!({"cpu": "1", "memory": "32Mi", "example.com/resource": wanted.devices.to_string()});
        let claims = if wanted.claim { json!([{"name": "claim"}]) } else { json!([]) };
        let pod_claims = if wanted.claim { json!([{"name": "claim", "resourceClaimTemplateName": "one"}]) } else { json!([]) };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "resourceClaims": pod_claims,
                "containers": [{
                    "name": "main", "image": "docker.io/lab/busybox:1", "imagePullPolicy": "Never",
                    "resources": {"requests": amounts, "limits": amounts, "claims": claims},
                }],
            },
        });
        self.create(PODS, &pod).await;
    }

    /// Removes a pod, and returns at the very moment in which its name is free again.
    pub(crate) async fn remove_pod(&self, name: &str) {
        let path = format!("{PODS}/{name}");
        let reply = self.ask(Method::DELETE, &path, "").await;
        assert!(reply.status.is_success(), "{path}: {} {}", reply.status, reply.body);
        self.until("the pod goes", &path, |found| !found).await;
    }

    /// The pod as the API server has it, for whoever must explain something.
    pub(crate) async fn pod_status(&self, name: &str) -> Value {
        let reply = self.ask(Method::GET, &format!("{PODS}/{name}"), "").await;
        serde_json::from_str::<Value>(&reply.body).map_or(Value::Null, |pod| pod["status"].clone())
    }

    async fn create(&self, path: &str, object: &Value) {
        let reply = self.ask(Method::POST, path, &object.to_string()).await;
        assert!(reply.status.is_success(), "{path}: {} {}", reply.status, reply.body);
    }

    async fn until(&self, what: &str, path: &str, wanted: impl Fn(bool) -> bool) {
        let looking = async {
            while !wanted(self.ask(Method::GET, path, "").await.status.is_success()) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(1), looking).await.unwrap_or_else(|_| panic!("not within a minute: {what}"));
    }

    async fn ask(&self, method: Method, path: &str, body: &str) -> admin::Reply {
        admin::request(&self.api, method, path, body.to_owned()).await.unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for program in &mut self.inside {
            // What has ended already needs no end.
            let _ended = program.kill();
            program.wait().unwrap();
        }
    }
}
