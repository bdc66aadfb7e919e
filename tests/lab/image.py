#!/usr/bin/env python3
"""image.py OUT.tar REPOSITORY:TAG: an image with a static busybox alone, as `ctr images import` takes it, so that nothing is pulled."""
import hashlib
import io
import json
import pathlib
import platform
import sys
import tarfile

BUSYBOX = pathlib.Path("/bin/busybox")
COMMAND = ["/bin/busybox", "sleep", "1000000"]
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def archive(target, entries):
    """Writes `entries` (name, bytes or None for a directory) as a tar file."""
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.mode = 0o755
            if content is None:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def main(out, reference):
    layer = io.BytesIO()
    archive(layer, [("bin", None), ("bin/busybox", BUSYBOX.read_bytes())])
    layer = layer.getvalue()
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps({
        "architecture": ARCHITECTURE,
        "os": "linux",
        "config": {"Cmd": COMMAND, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }).encode()
    config_name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [reference], "Layers": [f"{digest}/layer.tar"]}]).encode()
    with open(out, "wb") as target:
        archive(target, [(config_name, config), (f"{digest}/layer.tar", layer), ("manifest.json", manifest)])


main(*sys.argv[1:])
