"""Containers run: from an image that the engine keeps where it is told to, with what jobs need."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask, knock, settled

pytestmark = pytest.mark.deadline(120)

REACHED_WITHIN_S = 30.0
"""Another region's registry is there once its gateways have agreed on the way."""

IMAGE = "localhost/causeway-verification:1"
ARCHIVE = """
import hashlib, io, json, sys, tarfile
def tar(members):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, content in members:
            one = tarfile.TarInfo(name)
            if content is None:
                one.type, one.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(content, str):
                one.type, one.linkname = tarfile.SYMTYPE, content
            else:
                one.size = len(content)
            archive.addfile(one, io.BytesIO(content) if isinstance(content, bytes) else None)
    return whole.getvalue()
folders = [(name, None) for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "run")]
layer = tar(folders + [(name, "usr/" + name) for name in ("bin", "lib", "lib64", "sbin")])
config = json.dumps({
    "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[__import__("os").uname().machine],
    "os": "linux", "config": {},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
}).encode()
manifest = [{"Config": "config.json", "RepoTags": [sys.argv[2]], "Layers": ["layer.tar"]}]
parts = [("config.json", config), ("layer.tar", layer), ("manifest.json", json.dumps(manifest).encode())]
with open(sys.argv[1], "wb") as file:
    file.write(tar(parts))
print(json.dumps(True))
"""
"""An image without any program: it is given the node's own `/usr`, so that nothing has to be fetched."""


@pytest.fixture(scope="module")
def image(host: Host, expect: Expect) -> Iterator[str]:
    """The image, in the engine's storage."""
    archive = host.check_output("mktemp --dry-run --tmpdir=/run causeway-XXXXXX")
    load, remove = {
        "podman": (f"podman load --quiet --input {archive}", f"podman rmi --force {IMAGE}"),
        "containerd": (f"ctr images import {snapshotter(host, expect)} {archive}", f"ctr images rm {IMAGE}"),
    }[expect.container_runtime_engine]
    try:
        ask(host, ARCHIVE, archive, IMAGE)
        host.run_test(load)
        yield IMAGE
    finally:
        host.run(f"{remove}; rm --force {archive}")


def snapshotter(host: Host, expect: Expect) -> str:
    """Kubernetes has its own from containerd's configuration; `ctr` is told."""
    kind = host.check_output(f"stat --file-system --format=%T {expect.container_runtime_storage_path}")
    return "--snapshotter native" if kind == "overlayfs" else ""


def run(host: Host, expect: Expect, *command: str, options: str = "") -> str:
    """What a program of the node's prints in a container.

    It prints to a file: of one that ends at once either engine may lose what it said to its own output.
    """
    said = host.check_output("mktemp --directory")
    words = f"""/usr/bin/sh -c '"$0" "$@" > /said/out' {" ".join(command)}"""
    flags = f"--rm --pull never --network none --volume /usr:/usr:ro --volume {said}:/said"
    binds = ["src=/usr,dst=/usr,options=rbind:ro", f"src={said},dst=/said,options=rbind:rw"]
    mounts = " ".join(f"--mount type=bind,{bind}" for bind in binds)
    # A node may have no cpu controller, of which `ctr` would take a share by itself.
    how = f"--rm --cpu-shares 0 {snapshotter(host, expect)} {mounts}"
    started = {
        "podman": f"podman run {flags} {options} {IMAGE} {words}",
        "containerd": f"ctr run {how} {options} {IMAGE} causeway-verification-$$ {words}",
    }[expect.container_runtime_engine]
    try:
        host.check_output(started)
        return str(host.check_output(f"cat {said}/out"))
    finally:
        host.run(f"rm --recursive {said}")


@pytest.mark.experiment
@pytest.mark.usefixtures("image")
def test_a_container_runs(host: Host, expect: Expect) -> None:
    assert run(host, expect, "/usr/bin/basename", "/a/hello") == "hello"


def test_images_lie_where_they_shall(host: Host, expect: Expect) -> None:
    folder = expect.container_runtime_storage_path
    if expect.container_runtime_engine == "podman":
        assert host.check_output("podman info --format '{{.Store.GraphRoot}}'") == folder
    else:
        listed = host.check_output("ctr plugins list --detailed id==native")
        assert folder in listed, "as the daemon that runs has it"


@pytest.mark.experiment
@pytest.mark.usefixtures("image")
def test_a_job_may_lock_memory_and_have_as_many_processes_as_it_likes(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if expect.container_runtime_engine != "podman":
        verdict.not_declared("Kubernetes says it of each pod")
    limits = run(host, expect, "/usr/bin/cat", "/proc/self/limits")
    (locks,) = (line.split() for line in limits.splitlines() if line.startswith("Max locked memory"))
    if host.run("prlimit --memlock=unlimited:unlimited true").rc != 0:
        verdict.unsupported(f"the kernel grants this node no unlimited locks: {locks[3]} bytes")
    assert locks[3] == "unlimited"


def test_an_image_without_its_registry_is_refused(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if expect.container_runtime_engine != "podman":
        verdict.not_declared("containerd knows no short names")
    done = host.run("podman pull --quiet causeway-verification-nowhere")
    assert done.rc != 0
    assert "short-name" in done.stderr


def test_mirrors_are_asked_first(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    """As the engine itself understands its files."""
    wanted = {one["name"]: list(one["mirrors"]) for one in expect.container_runtime_registries}
    if not wanted:
        verdict.not_declared("no registry has a mirror")
    if expect.container_runtime_engine == "podman":
        known = json.loads(host.check_output("podman info --format json"))["registries"]
        found = {name: [each["Location"] for each in known[name]["Mirrors"] or ()] for name in wanted}
    else:
        assert 'config_path = "/etc/containerd/certs.d"' in host.check_output("containerd config dump")
        files = {
            name: host.file(f"/etc/containerd/certs.d/{name}/hosts.toml").content_string for name in wanted
        }
        found = {
            name: [
                line.split('"')[1].removeprefix("https://").replace("/v2/", "/")
                for line in text.splitlines()
                if line.startswith("[host.")
            ]
            for name, text in files.items()
        }
    assert found == wanted
    if expect.container_runtime_engine == "containerd":
        verdict.rendered("containerd reads these files at each pull, and tells nobody what it read")


def test_the_clusters_own_registries_let_this_node_in(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    """With its certificate, and not without."""
    if not expect.container_runtime_own:
        verdict.not_declared("the cluster has no registry")
    authority, certificate, key = (
        f"/etc/causeway-containers/{name}.pem" for name in ("authority", "certificate", "key")
    )
    for place in expect.container_runtime_own:
        look = partial(knock, host, authority, f"https://{place}/v2/", certificate, key)
        said = settled(look, lambda said: said.get("status") == 200, REACHED_WITHIN_S)
        assert said.get("status") == 200, f"{place}: {said}"
        assert "refused" in knock(host, authority, f"https://{place}/v2/"), place


@pytest.mark.experiment
@pytest.mark.usefixtures("image")
def test_gpus_come_into_containers(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.container_runtime_gpus:
        verdict.not_declared("no toolkit describes GPUs")
    if expect.container_runtime_gpus_simulated:
        verdict.unsupported("no GPU here")
    if expect.container_runtime_engine == "podman":
        listed = run(host, expect, "/usr/bin/nvidia-smi", "-L", options="--device nvidia.com/gpu=all")
        assert listed.count("UUID:") >= expect.container_runtime_gpus
    else:
        described = host.check_output("nvidia-ctk cdi list")
        assert (
            len([line for line in described.splitlines() if "=all" not in line])
            >= expect.container_runtime_gpus
        )
