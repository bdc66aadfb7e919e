// Calls a podresources socket with @grpc/grpc-js: client.js SOCKET FORM NAMESPACE POD. One JSON line per call; see ../README.md.
"use strict";
const grpc = require("@grpc/grpc-js");

const DEADLINE_MS = 10_000;
const UNKNOWN = "no-such-pod";
const TARGETS = { unix: (socket) => "unix://" + socket, "unix-short": (socket) => "unix:" + socket };
const asIs = (bytes) => bytes;

/** GetPodResourcesRequest: pod_name = 1, pod_namespace = 2; both shorter than 128 bytes. */
function getRequest(namespace, pod) {
  const field = (tag, text) => Buffer.concat([Buffer.from([(tag << 3) | 2, text.length]), Buffer.from(text)]);
  return Buffer.concat([field(1, pod), field(2, namespace)]);
}

function call(client, path, request) {
  return new Promise((resolve) => {
    const options = { deadline: Date.now() + DEADLINE_MS };
    client.makeUnaryRequest(path, asIs, asIs, request, new grpc.Metadata(), options, (error, reply) =>
      resolve(error ? { code: error.code, text: error.details, reply: "" } : { code: 0, text: "", reply: reply.toString("hex") }),
    );
  });
}

async function main(socket, form, namespace, pod) {
  if (!TARGETS[form]) throw new Error(`unknown form ${form}: ${Object.keys(TARGETS).join(", ")}`);
  const options = { "grpc.max_receive_message_length": 16 << 20 };
  const client = new grpc.Client(TARGETS[form](socket), grpc.credentials.createInsecure(), options);
  const version = require("@grpc/grpc-js/package.json").version;
  for (const [method, path, request] of [
    ["List", "/v1.PodResourcesLister/List", Buffer.alloc(0)],
    ["GetAllocatableResources", "/v1.PodResourcesLister/GetAllocatableResources", Buffer.alloc(0)],
    ["Get", "/v1.PodResourcesLister/Get", getRequest(namespace, pod)],
    ["Get unknown", "/v1.PodResourcesLister/Get", getRequest(namespace, UNKNOWN)],
    ["v1alpha1 List", "/v1alpha1.PodResourcesLister/List", Buffer.alloc(0)],
  ]) {
    console.log(JSON.stringify({ client: `grpc-js ${version}`, form, method, ...(await call(client, path, request)) }));
  }
  client.close();
}

if (process.argv.length !== 6) {
  console.error("usage: client.js SOCKET FORM NAMESPACE POD");
  process.exit(64);
}
main(...process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
