"""A pool's image: killed half-way, built twice, not what it says; two nodes made from it, and a disk."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from infra.images import disk, forms
from infra.providers.local import baked, signing, vms
from infra.providers.local.image import images_dir
from tests.integration.checkout import DEBIANS_GPUS, Checkout, containers, image_in, region, said
from tests.patience import wait_for

PROVES = ("local", "base", "cuda_base", "images")
POOL, GPU_POOL = "tokyo-control", "tokyo-gpu"
GPU_NODE, PERSISTENCED = "tokyo-gpu-0", "nvidia-persistenced"
ZONE, LATER = "Pacific/Chatham", "Pacific/Apia"
"""Of nobody else's images: what this file builds is its own to break and to remove."""
DISK_MIB = 6144
"""Of the machine that boots a disk of less."""
BOOT_S = 1800
"""Without KVM, from the firmware on, beside other tests."""
SSH_OPTIONS = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes")
CUT = 16
"""Characters of a line that make it a secret of its own, and not a word."""


def cluster(checkout: Checkout, zone: str = ZONE) -> dict[str, Any]:
    """Two nodes with keys and certificates of their own, and one with a GPU stack."""
    tokyo = region("tokyo", checkout.cidr(0), zone, {"control": 2, "gpu": 1})
    tokyo["pools"][1] |= DEBIANS_GPUS
    return {
        "name": "pacific",
        "regions": [tokyo],
        "monitoring": {"kind": "prometheus", "retention": {"time_days": 2}},
    }


def image(checkout: Checkout, *words: str, expect: int = 0) -> str:
    return checkout.run("exec", "causeway", "image", *words, expect=expect)


def build(checkout: Checkout, *words: str, pool: str = POOL) -> str:
    return image(checkout, "build", pool, "--stack", checkout.stack, *words)


def ours() -> list[str]:
    """The images that were built of this file's time zones."""
    lists = ((clock_in(one.folder / baked.FILES), one.name) for one in baked.stored())
    return [name for clock, name in lists if clock.endswith((f'{ZONE}"', f'{LATER}"'))]


def clock_in(files: Path) -> str:
    return next(line for line in files.read_text().splitlines() if "./etc/localtime" in line)


@pytest.fixture(scope="module", autouse=True)
def _only_ours(checkout: Checkout) -> Iterator[None]:
    """What an earlier run left is removed, and so is what this one makes."""
    for name in ours():
        baked.remove(name)
    yield
    checkout.run("down", checkout.stack)
    for name in ours():
        image(checkout, "remove", name)
    assert not ours()


@pytest.fixture(scope="module")
def built(checkout: Checkout) -> str:
    """The image's name; its first build was killed."""
    checkout.declare(cluster(checkout))
    killed_half_way(checkout)
    return image_in(build(checkout))


@pytest.fixture(scope="module")
def with_gpus(checkout: Checkout, built: str) -> str:
    """The name of the image with the GPU stack."""
    assert built
    return image_in(build(checkout, pool=GPU_POOL))


@pytest.fixture(scope="module")
def standing(checkout: Checkout, with_gpus: str) -> str:
    """What `up` printed once the images were there."""
    assert with_gpus
    return checkout.up()


def killed_half_way(checkout: Checkout) -> None:
    """Kill a build while its roles run, with nothing of it used afterwards."""
    command = ("exec", "causeway", "image", "build", POOL, "--stack", checkout.stack)
    process = checkout.start(*command)
    wait_for(lambda: builders() and roles_run(checkout), "the roles to run in the builder")
    process.kill()  # `./run` has become the command
    process.communicate()
    checkout.running.remove(process)
    assert ours() == []
    # The next build clears it away: ours, or one of another test that waited, and has a builder soon.
    wait_for(builders, "what a killed build leaves, or a build that has cleared it away")


def builders() -> list[str]:
    asked = said("podman", "ps", "--all", "--format={{.Names}}", "--filter=label=causeway.image-builder")
    return asked.split()


def roles_run(checkout: Checkout) -> bool:
    runs = checkout.folder.glob(".causeway/images/runs/*/artifacts/*/stdout")
    return any("TASK [base" in run.read_text(errors="replace") for run in runs)


def test_after_a_killed_build_the_next_one_is_whole_and_nothing_is_left(built: str) -> None:
    assert ours() == [built]
    assert not [one for one in builders() if built in one]
    assert not list(baked.folders().glob(f".{built}.*"))


def test_two_builds_are_equal_in_every_byte_also_where_the_cache_was_damaged(
    checkout: Checkout, built: str
) -> None:
    package = next((images_dir() / "archives").glob("chrony_*.deb"))
    whole = package.read_bytes()
    # apt looks at its size only. Nobody else's build is past its own look at what is kept.
    with baked.locked(lambda _: None):
        package.write_bytes(whole[:-9] + bytes(byte ^ 255 for byte in whole[-9:]))
    text = build(checkout, "--again")
    assert image_in(text) == built
    assert "built again: equal in every byte" in text
    assert package.read_bytes() == whole


def test_one_that_is_not_what_its_manifest_names_is_not_used(
    checkout: Checkout, built: str, tmp_path: Path
) -> None:
    label = ("--change", "LABEL causeway.image=baked")
    said("podman", "import", "--quiet", *label, str(tiny(tmp_path)), baked.tag_of(built))
    assert baked.find(built) is None
    root = re.findall(r"^root: (\S+)", build(checkout), re.MULTILINE)
    found = baked.find(built)
    assert found, "so it is built anew"
    assert root == [f"sha256:{found.root}"]


def tiny(folder: Path) -> Path:
    """A root that is nobody's."""
    path = folder / "tiny.tar"
    subprocess.run(["tar", "-C", "/etc", "-cf", str(path), "hostname"], check=True)
    return path


def test_its_packages_are_listed_with_their_checksums(built: str) -> None:
    manifest = json.loads((baked.folder(built) / baked.MANIFEST).read_text())
    packages = {package["name"]: package for package in manifest["packages"]}
    assert {"chrony", "prometheus-node-exporter"} <= packages.keys()
    assert all(re.fullmatch("[0-9a-f]{64}", package["sha256"]) for package in packages.values())
    bill = json.loads((baked.folder(built) / baked.SBOM).read_text())
    assert {part["name"] for part in bill["packages"][1:]} == packages.keys()


def test_what_was_signed_is_held_against_all_of_it(checkout: Checkout, built: str) -> None:
    bill, manifest = (baked.folder(built) / name for name in (baked.SBOM, baked.MANIFEST))
    assert f"image {built} is what was signed" in image(checkout, "verify", built)
    for file, said_of_it in ((bill, "not the file that was signed"), (manifest, "is not signed by")):
        whole = file.read_text()
        file.write_text(f"{whole}\n")
        assert said_of_it in image(checkout, "verify", built, expect=1)
        file.write_text(whole)


def test_what_was_added_to_podman_s_copy_is_named(checkout: Checkout, built: str) -> None:
    """What podman packs of it would not show it."""
    layer = "--format={{.GraphDriver.Data.UpperDir}}"
    added = Path(said("podman", "image", "inspect", layer, baked.tag_of(built)).strip(), "etc", "added")
    added.touch()
    try:
        assert '"./etc/added": only in what is there' in image(checkout, "verify", built, expect=1)
    finally:
        added.unlink()
    assert f"image {built} is what was signed" in image(checkout, "verify", built)


@pytest.fixture(scope="module")
def disk_folder(checkout: Checkout, built: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A disk of the image, with the key that gets in beside it."""
    assert built
    folder = tmp_path_factory.mktemp("disk")
    said("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    return written(checkout, folder / "one")


def written(checkout: Checkout, folder: Path) -> Path:
    key = str(folder.parent / "key.pub")
    image(checkout, "disk", POOL, str(folder), "--stack", checkout.stack, "--key", key)
    return folder


@pytest.mark.long
def test_two_disks_are_equal_in_every_byte(checkout: Checkout, disk_folder: Path) -> None:
    again = written(checkout, disk_folder.with_name("two"))
    try:
        assert (again / forms.SUMS).read_text() == (disk_folder / forms.SUMS).read_text()
        assert signing.is_signed(again / forms.SUMS)
    finally:
        shutil.rmtree(again)


@pytest.mark.long
def test_a_machine_boots_the_disk_by_uefi_and_makes_it_its_own(built: str, disk_folder: Path) -> None:
    """It has the whole disk, a name server, and keys and an ID that are in no image."""
    with booted(disk_folder) as ask:
        assert ask("cat /usr/lib/causeway-image") == built
        assert ask("systemctl --failed --no-legend") == ""
        assert int(ask("df --block-size=M --output=size / | tail -1").rstrip("M")) > 0.9 * (DISK_MIB - 512)
        assert re.fullmatch("[0-9a-f]{32}", ask("cat /etc/machine-id"))
        assert "ED25519" in ask("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
        assert "console=ttyS0,115200n8" in ask("cat /proc/cmdline")
        assert "multi-user.target" in (disk_folder.parent / "console.log").read_text(errors="replace")
        assert "nameserver" in ask("cat /etc/resolv.conf")
        assert ask("ss -Hlntu sport = :5355") == "", "only name servers answer for names"
        wait_for(lambda: ask("ls /boot/efi"), "the partition that the loader is on")
        assert ask("bootctl is-installed") == "yes", "so Debian's hooks enter the kernels of upgrades"
        assert ask("ls /boot/efi/loader/entries") == f"causeway-{ask('uname -r')}.conf"


@contextmanager
def booted(folder: Path) -> Iterator[Callable[[str], str]]:
    """A machine of its own with the disk, which has become larger: what asks it, as root."""
    place, port = folder.parent, free_port()
    disk_file, firmware = str(place / "disk.qcow2"), "/usr/share/OVMF/OVMF_{}_4M.fd"
    base = ("-F", "raw", "-b", str(folder / disk.RAW))
    said("qemu-img", "create", "-q", "-f", "qcow2", *base, disk_file, f"{DISK_MIB}M")
    shutil.copy(firmware.format("VARS"), place / "vars.fd")
    command = [
        *("setpriv", "--pdeathsig", "KILL", *vms.COMMON, *vms.ACCELERATION["tcg"], "-m", "1536M"),
        *("-drive", f"if=pflash,format=raw,readonly=on,file={firmware.format('CODE')}"),
        *("-drive", f"if=pflash,format=raw,file={place / 'vars.fd'}"),
        *("-drive", f"if=none,id=disk,file={disk_file},cache=unsafe", "-device", "nvme,serial=1,drive=disk"),
        *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=net"),
        *("-device", "virtio-rng-pci", "-serial", f"file:{place / 'console.log'}"),
    ]

    def ask(line: str) -> str:
        words = ("-i", str(place / "key"), "-p", str(port), *(f"-o{option}" for option in SSH_OPTIONS))
        return said("ssh", *words, "root@127.0.0.1", line)

    def is_up() -> bool:
        with suppress(subprocess.CalledProcessError):
            return ask("systemctl is-system-running || true") in ("running", "degraded")
        assert machine.poll() is None, "the machine is gone"
        return False

    machine = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        wait_for(is_up, f"the machine to boot: see {place / 'console.log'}", BOOT_S)
        yield ask
    finally:
        machine.kill()
        machine.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.long
def test_nodes_start_from_it_and_are_as_declared(checkout: Checkout, built: str, standing: str) -> None:
    assert f"new nodes of {POOL} start from the baked image {built}" in standing
    assert made_from(checkout) == {f"tokyo-control-{i}": baked.tag_of(built) for i in (0, 1)}
    assert re.search(r"checks: [1-9]\d* effective.*\b0 failed, 0 unreachable", standing)
    assert sorted(baked.users(built)) == [f"cw-{checkout.stack}-tokyo-control-{i}" for i in (0, 1)]
    assert checkout.changes() == {}


@pytest.mark.long
@pytest.mark.usefixtures("standing")
def test_what_is_baked_is_not_done_again(checkout: Checkout) -> None:
    for task in ("base : Install what the role needs", "metrics_service : Install the package"):
        assert "ok: [tokyo-control-0]" in told(checkout, task), task


def told(checkout: Checkout, task: str) -> str:
    """What became of a task in the only run there was, wherever it ran."""
    (log,) = checkout.files.glob("runs/*/artifacts/*/stdout")
    heading = rf"^TASK \[{re.escape(task)}\] \*+\n((?:\w+: .*\n)+)"
    return "".join(re.findall(heading, log.read_text(), re.MULTILINE))


def test_a_gpu_stack_is_baked_and_its_services_wait_for_their_role(with_gpus: str) -> None:
    manifest = json.loads((baked.folder(with_gpus) / baked.MANIFEST).read_text())
    packages = {package["name"]: package for package in manifest["packages"]}
    for name in ("nvidia-smi", "libcuda1", PERSISTENCED):
        assert packages[name]["version"].startswith("550.163.01-")
        assert packages[name]["sha256"], "it is known from where it came"
    files = (baked.folder(with_gpus) / baked.FILES).read_text()
    assert "causeway-gpu.sources" in files
    assert f"etc/systemd/system/multi-user.target.wants/{PERSISTENCED}" not in files
    assert "_non-free_binary" in files, "apt on a node knows where the stack comes from"


@pytest.mark.long
@pytest.mark.usefixtures("standing")
def test_a_node_takes_its_gpu_stack_as_it_is_baked(checkout: Checkout, with_gpus: str) -> None:
    assert made_from(checkout, GPU_POOL) == {GPU_NODE: baked.tag_of(with_gpus)}
    assert "ok: [tokyo-gpu-0]" in told(checkout, "cuda_base : Install the declared versions, and hold them")
    assert {"libcuda1", "nvidia-smi"} <= {*checkout.on_node(GPU_NODE, "apt-mark", "showhold").split()}
    assert checkout.on_node(GPU_NODE, "systemctl", "is-enabled", PERSISTENCED) == "enabled"
    assert checkout.on_node(GPU_NODE, "systemctl", "--failed", "--no-legend") == ""


@pytest.mark.long
@pytest.mark.usefixtures("standing")
def test_nodes_are_born_with_keys_and_names_of_their_own(checkout: Checkout) -> None:
    for file in ("/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key"):
        found = {checkout.on_node(node, "cat", file) for node in checkout.instances()}
        assert len(found) == len(checkout.instances()), file


@pytest.mark.long
@pytest.mark.usefixtures("standing")
def test_no_secret_of_the_stack_is_in_it(checkout: Checkout, built: str, tmp_path: Path) -> None:
    needles = tmp_path / "needles"
    needles.write_text("".join(f"{line}\n" for line in sorted(secrets_of(checkout))))
    root = Path(said("podman", "image", "mount", baked.tag_of(built)))
    try:
        assert holders(needles, root) == []
    finally:
        said("podman", "image", "unmount", baked.tag_of(built))
    for node, container in checkout.instances().items():
        root = Path(said("podman", "mount", container))
        assert holders(needles, root), f"what is looked for is on {node}, where it belongs"
        said("podman", "unmount", container)


def secrets_of(checkout: Checkout) -> set[str]:
    """Every line of every secret of the stack, and what its nodes have made for themselves."""
    files = [path for path in checkout.files.rglob("*") if path.is_file()]
    private = [path for path in files if {"secrets", "ssh"} & {*path.parts} and path.suffix != ".pub"]
    texts = [path.read_text(errors="replace") for path in private if path.name.count("config") == 0]
    texts += [(checkout.folder / ".causeway" / "passphrase").read_text()]
    for node in checkout.instances():
        texts += [checkout.on_node(node, "cat", "/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key")]
    lines = {line.strip() for text in texts for line in text.splitlines()}
    found = {line for line in lines if len(line) >= CUT and not line.startswith("-----")}
    assert len(found) > 20, "there are secrets to look for"
    return found


def holders(needles: Path, root: Path) -> list[str]:
    """The files below a root that hold one of the lines."""
    command = ["grep", "--recursive", "--text", "--fixed-strings", "--files-with-matches", "-D", "skip"]
    done = subprocess.run(
        [*command, f"--file={needles}", str(root)], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.split()


@pytest.mark.long
@pytest.mark.usefixtures("standing")
def test_an_image_of_older_inputs_is_not_used_and_standing_nodes_stay(checkout: Checkout, built: str) -> None:
    before = checkout.instances()
    checkout.declare(cluster(checkout, LATER))
    assert "tokyo-control-nodes" not in checkout.changes(), "another image is no reason to touch a node"
    said("podman", "rm", "--force", "--time=0", f"cw-{checkout.stack}-tokyo-control-1")
    text = checkout.up()
    assert f"start from the plain image: {built} was baked of older inputs" in text
    now = made_from(checkout)
    assert now["tokyo-control-0"] == baked.tag_of(built)
    assert now["tokyo-control-1"].startswith("localhost/causeway-node:")
    assert checkout.instances()["tokyo-control-0"] == before["tokyo-control-0"]
    assert checkout.on_node("tokyo-control-0", "date", "+%z") == "+1300"


@pytest.mark.long
@pytest.mark.usefixtures("standing")
def test_one_that_nobody_signed_is_not_used(checkout: Checkout) -> None:
    name = image_in(build(checkout))
    signature = Path(f"{baked.folder(name) / baked.MANIFEST}{signing.SUFFIX}")
    signature.rename(signature.with_suffix(".away"))
    said("podman", "rm", "--force", "--time=0", f"cw-{checkout.stack}-tokyo-control-1")
    assert f"start from the plain image: {name} is not signed by" in checkout.up()
    signature.with_suffix(".away").rename(signature)


@pytest.mark.long
@pytest.mark.usefixtures("standing")
def test_an_image_is_rolled_out_by_consent_a_node_after_the_other(checkout: Checkout, built: str) -> None:
    """One stands on an image of older inputs, one on the plain one."""
    before, name = containers_of_pool(checkout), image_in(build(checkout))
    rollout = ("rollout", POOL, "--stack", checkout.stack)
    assert f"not made from image {name}: tokyo-control-0, tokyo-control-1" in image(checkout, *rollout)
    assert containers_of_pool(checkout) == before, "without --replace nothing is touched"
    text = image(checkout, *rollout, "--replace")
    steps = [text.index(f"anew: tokyo-control-{number} ({number} of 2 done)") for number in (0, 1)]
    verified = [found.start() for found in re.finditer(r"checks: .*\b0 failed, 0 unreachable.*now", text)]
    assert steps[0] < verified[0] < steps[1] < verified[1]
    assert made_from(checkout) == {f"tokyo-control-{i}": baked.tag_of(name) for i in (0, 1)}
    assert not set(before.values()) & set(containers_of_pool(checkout).values())
    assert f"that stand are made from image {name}" in image(checkout, *rollout, "--replace")
    assert checkout.changes() == {}
    assert baked.users(built) == []


@pytest.mark.long
@pytest.mark.usefixtures("standing")
def test_an_image_that_a_node_is_made_from_is_not_removed(checkout: Checkout, built: str) -> None:
    name = image_in(build(checkout))
    assert "nodes are made from image" in image(checkout, "remove", name, expect=2)
    image(checkout, "remove", built)
    assert baked.find(name)


def containers_of_pool(checkout: Checkout) -> dict[str, str]:
    """Node name → which container it is now."""
    return {name: one for name, one in checkout.instances().items() if name.startswith(POOL)}


def made_from(checkout: Checkout, pool: str = POOL) -> dict[str, str]:
    """Node name → its container's image, of a pool."""
    names = {name: one for name, one in containers(checkout.stack).items() if name.startswith(pool)}
    return {name: said("podman", "inspect", "--format={{.ImageName}}", one) for name, one in names.items()}
