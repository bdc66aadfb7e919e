# Sourced by `inside`: etcd, API server, controllers and scheduler from one binary (BIN/kube), for what static pods cannot do:
# DRA claims, DaemonSets, charts. Everything is thrown away at the end.
control_plane_start() { # NAME ARGUMENTS...
  local name=$1; shift
  "$bin/kube" "$name" "$@" >"$lab/out/$name.log" 2>&1 </dev/null &
}

kubectl() { "$bin/kube" kubectl --kubeconfig "$lab/admin.kubeconfig" "$@"; }

control_plane_up() {
  local keys=$lab/control-plane; rm -rf "$keys"; mkdir -p "$keys"
  openssl genrsa -out "$keys/sa.key" 2048 2>/dev/null
  echo 'admin-token,admin,admin,system:masters' > "$keys/tokens"
  control_plane_start etcd --data-dir "$keys/etcd" --unsafe-no-fsync
  control_plane_start kube-apiserver --etcd-servers=http://127.0.0.1:2379 --cert-dir="$keys/certs" --secure-port=6443 \
    --bind-address=127.0.0.1 --advertise-address=10.99.0.1 --service-cluster-ip-range=10.98.0.0/24 --token-auth-file="$keys/tokens" \
    --kubelet-preferred-address-types=InternalIP --authorization-mode=Node,RBAC --service-account-issuer=https://lab \
    --service-account-key-file="$keys/sa.key" --service-account-signing-key-file="$keys/sa.key"
  cat > "$lab/admin.kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admin-token}}]
contexts: [{name: lab, context: {cluster: lab, user: admin}}]
current-context: lab
CONFIG
  wait_for 60 "the API server is not ready" "$lab/out/kube-apiserver.log" kubectl get --raw /readyz
  local as_admin=(--kubeconfig="$lab/admin.kubeconfig" --leader-elect=false)
  control_plane_start kube-controller-manager "${as_admin[@]}" --authentication-kubeconfig="$lab/admin.kubeconfig" \
    --authorization-kubeconfig="$lab/admin.kubeconfig" --service-account-private-key-file="$keys/sa.key" \
    --root-ca-file="$keys/certs/apiserver.crt" --use-service-account-credentials=false
  control_plane_start kube-scheduler "${as_admin[@]}"
  KUBELET_FLAGS="${KUBELET_FLAGS:-} --kubeconfig=$lab/admin.kubeconfig"
}

node_is_ready() { kubectl get node node1 -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}' | grep -q True; }
