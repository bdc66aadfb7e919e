"""Calls a podresources socket with grpcio: client.py SOCKET FORM NAMESPACE POD. One JSON line per call; see ../README.md."""
import json
import sys

import grpc

DEADLINE = 10
UNKNOWN = "no-such-pod"


def target(form, socket):
    """grpcio's own spellings of a Unix socket; the second one is relative to the working folder."""
    if form == "unix":
        return "unix://" + socket
    if form == "unix-short":
        return "unix:" + socket
    sys.exit(f"unknown form {form}: unix, unix-short")


def get_request(namespace, pod):
    """GetPodResourcesRequest: pod_name = 1, pod_namespace = 2; both shorter than 128 bytes."""
    return b"".join(bytes([tag << 3 | 2, len(text)]) + text.encode() for tag, text in ((1, pod), (2, namespace)))


def main(socket, form, namespace, pod):
    calls = [
        ("List", "/v1.PodResourcesLister/List", b""),
        ("GetAllocatableResources", "/v1.PodResourcesLister/GetAllocatableResources", b""),
        ("Get", "/v1.PodResourcesLister/Get", get_request(namespace, pod)),
        ("Get unknown", "/v1.PodResourcesLister/Get", get_request(namespace, UNKNOWN)),
        ("v1alpha1 List", "/v1alpha1.PodResourcesLister/List", b""),
    ]
    with grpc.insecure_channel(target(form, socket), [("grpc.max_receive_message_length", 16 << 20)]) as channel:
        for name, path, request in calls:
            line = {"client": f"grpcio {grpc.__version__}", "form": form, "method": name, "code": 0, "text": "", "reply": ""}
            try:
                line["reply"] = channel.unary_unary(path)(request, timeout=DEADLINE).hex()
            except grpc.RpcError as error:
                line["code"], line["text"] = error.code().value[0], error.details()
            print(json.dumps(line), flush=True)


if len(sys.argv) != 5:
    sys.exit(__doc__)
main(*sys.argv[1:])
