"""One region's Ceph on three nodes, used by two: what breaks, what comes back, what is lost (nothing).

The tests are one story on one stack.
"""

import json
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from infra.process import run
from infra.providers.local import names, sweep
from tests.integration.checkout import PATIENCE_S, Checkout, region, within
from tests.patience import wait_for

PROVES = ("storage", "ceph", "ceph_client")
NODES = tuple(f"tokyo-storage-{number}" for number in range(3))
FOURTH = "tokyo-spare-0"
BOTH_POOLS = ["storage", "spare"]
BAKED: list[str] = []
"""Images from which the nodes with Ceph start: 40 s of a core for its packages on each node. That these are
installed on plain ones is seen where the default stack stands up, and by the role's own scenarios."""
WRITER, READER = "tokyo-gpu-0", "tokyo-gpu-1"
OSDS = "/var/lib/ceph/osd"
FOLDER = "/mnt/train/datasets"
# Ever more slowly: a machine that takes four times as long has twice as many files to read, of which 256 take
# some fifteen seconds (`CHECK`).
WRITE = """
import hashlib, os, sys, time
folder, until = sys.argv[1], sys.argv[2]
number = 0
while not os.path.exists(until):
    data = os.urandom(1 << 16)
    time.sleep(0.2 + number / 150)
    part = f"{folder}/.{number}"
    with open(part, "wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    os.rename(part, f"{folder}/{number}-{hashlib.sha256(data).hexdigest()}")
    number += 1
print(number)
"""
# Side by side: at the first look of another node at a new file its writer gives up what it holds of it, which
# waits for the metadata server's next tick.
CHECK = """
import concurrent.futures, hashlib, os, sys
def is_whole(name):
    with open(f"{sys.argv[1]}/{name}", "rb") as file:
        return hashlib.sha256(file.read()).hexdigest() == name.split("-")[1]
names = [name for name in os.listdir(sys.argv[1]) if not name.startswith(".")]
with concurrent.futures.ThreadPoolExecutor(256) as threads:
    print(len(names), list(threads.map(is_whole, names)).count(False))
"""

# What has a file and an image open all the time, and at the end whether both hold what was written.
HOLD = """
import os, rados, rbd, sys, time
path, until = sys.argv[1:]
written, options = b"", dict(name="client.export.scratch", clustername="train", conffile="")
with rados.Rados(**options) as cluster, cluster.open_ioctx("scratch") as pool:
    rbd.RBD().create(pool, "held", 1 << 24)
    with rbd.Image(pool, "held") as image, open(path, "wb", buffering=0) as file:
        while not os.path.exists(until):
            data = os.urandom(1 << 10)
            file.write(data)
            os.fsync(file.fileno())
            image.write(data, len(written))
            image.flush()
            written += data
            time.sleep(0.2)
        print(image.read(0, len(written)) == written == open(path, "rb").read())
"""
OLD, NOW = "/run/old-keys", "/etc/ceph"
USES = {
    "admin": "ceph --keyring {}/ceph.client.admin.keyring health",
    "mon": "ceph --name mon. --keyring {}/ceph.mon.keyring health",
    "export.datasets": "ceph --cluster train --id export.datasets --keyring {}/{} health",
    "export.scratch": "rbd --cluster train --id export.scratch --keyring {}/{} ls scratch",
    "export.objects": "s3cmd --config {}/train.export.objects.s3 ls",
}
"""What a key is for → what may be done by it, with the folder of the key and its file's name."""

# As on a busy machine: a client's own look at whether it can remount ends after another has its key.
SLOW = """
printf '#!/bin/sh\\nsleep 2\\nexec /usr/bin/mount "$@"\\n' > /usr/local/sbin/mount
chmod +x /usr/local/sbin/mount
"""
# As a client does when it is to give room back: remount the place that it was started at.
REMOUNT = """
for client in $(pgrep --exact ceph-fuse); do
    place=$(tr '\\0' '\\n' < /proc/$client/cmdline | tail -1)
    LIBMOUNT_FORCE_MOUNT2=always /usr/bin/mount -i -o remount "$place"
done
"""

NEWER = Path(__file__).with_name("newer_ceph.py").read_text()
KINDS = ("mon", "mgr", "osd", "mds", "radosgw")
"""In the order in which an upgrade starts them again."""

# `ceph status` without what that program does before it asks, which is most of its work.
STATUS = """
import rados, sys
within = dict.fromkeys(("client_mount_timeout", "rados_mon_op_timeout"), "5")
with rados.Rados(name="client.admin", conffile="/etc/ceph/ceph.conf", conf=within) as cluster:
    refused, answer, said = cluster.mon_command('{"prefix": "status", "format": "json"}', b"")
    if refused:
        sys.exit(said)
    print(answer.decode())
"""

# How many placement groups an OSD had the last time that it was up.
LAST = """
import os, sys, time
sys.path.insert(0, "/usr/local/lib/causeway_ceph")
from asked import cluster
last = None
with cluster() as ask:
    while True:
        osd = {one["id"]: one for one in ask.mgr("osd df")["nodes"]}.get(int(sys.argv[1]))
        if osd is None or osd["status"] != "up":
            break
        last = osd["pgs"]
        time.sleep(0.2)
with open("/run/last.new", "w") as file:
    print(last, file=file)
os.rename("/run/last.new", "/run/last")
"""


def declaration(checkout: Checkout, spare: int = 0, *, old: bool = True, **more: Any) -> dict[str, Any]:
    """Three nodes with Ceph, SPARE more in another pool of such nodes. OLD: with an export called so."""
    tokyo = region("tokyo", checkout.cidr(0), "Asia/Tokyo", {"gpu": 2, "storage": 3})
    tokyo["pools"] += [{"name": "spare", "role": "storage", "count": spare}] if spare else []
    storage = {
        "name": "train",
        "region": "tokyo",
        "kind": "ceph",
        "pools": ["storage"],
        "osd_backing": {"kind": "file", "size_gib": 2},
        "osd_memory_gib": 0.875,
        "exports": [
            {"kind": "cephfs", "name": "datasets"},
            *[{"kind": "cephfs", "name": "old"}] * old,
            {"kind": "cephfs", "name": "cold", "quota_gib": 0.25, "erasure": {"k": 2, "m": 1}},
            {"kind": "rbd", "name": "scratch"},
            {"kind": "rgw", "name": "objects", "quota_gib": 0.02},
        ],
    }
    return {"name": "pacific", "regions": [tokyo], "storage": [storage | more]}


@pytest.fixture(scope="module", autouse=True)
def _stack(checkout: Checkout) -> Iterator[None]:
    checkout.declare(declaration(checkout))
    BAKED.append(checkout.bake("tokyo-storage"))
    said = checkout.up()
    assert re.search(r"\b0 failed, 0 unreachable", said)
    yield
    checkout.run("down", checkout.stack)
    for name in {*BAKED}:
        checkout.run("exec", "causeway", "image", "remove", name)
    assert sweep.leftovers(checkout.stack) == []


def status(checkout: Checkout, node: str = NODES[0]) -> dict[str, Any]:
    """`ceph status`, as a monitor's node says it; empty while there is no answer."""
    try:
        said = python(checkout, node, STATUS)
    except CalledProcessError:
        return {}
    found: dict[str, Any] = json.loads(said)
    return found


def is_whole(checkout: Checkout, node: str = NODES[0]) -> bool:
    """Every monitor, OSD and placement group is well."""
    found = status(checkout, node)
    if not found or len(found["quorum"]) < 3 or found["osdmap"]["num_up_osds"] < 3:
        return False
    return all(one["state_name"].startswith("active+clean") for one in found["pgmap"]["pgs_by_state"])


def osds_up(checkout: Checkout) -> int | None:
    """How many OSDs are up; None while no monitor answers: one that was asked may just have gone."""
    found: int | None = status(checkout).get("osdmap", {}).get("num_up_osds")
    return found


def warned(checkout: Checkout, of: str) -> bool | None:
    """Whether the cluster's health names a check; None while no monitor answers."""
    checks = status(checkout).get("health", {}).get("checks")
    return None if checks is None else of in checks


def up_since(checkout: Checkout, osd: str) -> int:
    """The epoch of the cluster's map in which an OSD came up last; 0 while no monitor answers."""
    try:
        said = checkout.on_node(NODES[0], "ceph", "osd", "dump", "--format", "json")
    except CalledProcessError:
        return 0
    return next(int(one["up_from"]) for one in json.loads(said)["osds"] if one["osd"] == int(osd))


def kill(checkout: Checkout, node: str, daemons: str) -> None:
    """End daemons as a power cut would: without a word."""
    checkout.on_node(node, "pkill", "--signal", "KILL", "--exact", daemons)


def python(checkout: Checkout, node: str, script: str, *words: str) -> str:
    return checkout.on_node(node, "timeout", "300", "python3", "-c", script, *words).strip()


def start_writing(checkout: Checkout, folder: str) -> None:
    checkout.on_node(WRITER, "mkdir", folder)
    checkout.on_node(WRITER, "rm", "--force", "/run/enough")
    write_on(checkout, "writer", "/run/wrote", WRITE, folder)


def write_on(checkout: Checkout, name: str, said: str, script: str, place: str) -> None:
    unit = ["systemd-run", f"--unit={name}", "--collect", f"--property=StandardOutput=truncate:{said}"]
    checkout.on_node(WRITER, *unit, "python3", "-c", script, place, "/run/enough")


def stop_writing(checkout: Checkout) -> int:
    """How many files were written, each of them on disk when it got its name."""
    checkout.on_node(WRITER, "touch", "/run/enough")
    active = ("sh", "-c", "systemctl is-active writer holder || true")
    wait_for(lambda: checkout.on_node(WRITER, *active) == "inactive\ninactive", "the writer ends")
    return int(checkout.on_node(WRITER, "cat", "/run/wrote"))


def test_what_one_node_writes_another_reads(checkout: Checkout) -> None:
    script = f"head --bytes=5000000 /dev/urandom > {FOLDER}/shared && sha256sum < {FOLDER}/shared"
    wrote = checkout.on_node(WRITER, "sh", "-ec", script)
    assert checkout.on_node(READER, "sh", "-ec", f"sha256sum < {FOLDER}/shared") == wrote


def test_an_object_that_one_node_puts_another_gets(checkout: Checkout) -> None:
    s3 = "s3cmd --config /etc/ceph/train.export.objects.s3"
    make = "head --bytes=2000000 /dev/urandom > /run/o; sha256sum < /run/o"
    wrote = checkout.on_node(WRITER, "sh", "-ec", make)
    checkout.on_node(WRITER, "sh", "-ec", f"{s3} mb s3://objects; {s3} put /run/o s3://objects/o")
    checkout.on_node(READER, "sh", "-ec", f"{s3} get --force s3://objects/o /run/o")
    assert checkout.on_node(READER, "sh", "-ec", "sha256sum < /run/o") == wrote


def replace_keys(checkout: Checkout) -> set[str]:
    """All of the storage's at once, as docs/storage.md has it in "Replacing a key"; what they are for."""
    shown = checkout.run("exec", "pulumi", "stack", "--show-urns", "--stack", checkout.stack)
    of = "::storage-train-"
    urns = [word for word in shown.split() if word[:4] == "urn:" and of in word]
    up = ("pulumi", "up", "--yes", "--skip-preview", "--stack", checkout.stack)
    checkout.run("exec", *up, *(word for urn in urns for word in ("--replace", urn)))
    return {urn.partition(of)[2] for urn in urns}


def is_taken(checkout: Checkout, node: str, use: str, folder: str) -> bool:
    """Whether the cluster takes a node's key from a folder; it says so where it does not."""
    command = USES[use].format(folder, f"train.client.{use}.keyring")
    said = checkout.on_node(node, "sh", "-c", f"LC_ALL=C timeout 60 {command} 2>&1; echo status=$?")
    refused = re.search("permission denied|SignatureDoesNotMatch", said, re.IGNORECASE)
    assert said.endswith("status=0") or refused, said
    return not refused


@pytest.mark.long
def test_keys_are_replaced_under_writes(checkout: Checkout) -> None:
    """Who has a file or an image open goes on; the old key is refused on every node, the new one taken."""
    folder, nodes = (
        f"{FOLDER}/replaced",
        {WRITER: ("export",), READER: ("export",), NODES[2]: ("admin", "mon")},
    )
    for node in nodes:
        checkout.on_node(node, "cp", "--archive", NOW, OLD)
    start_writing(checkout, folder)
    write_on(checkout, "holder", "/run/held", HOLD, f"{FOLDER}/held")
    checkout.on_node(WRITER, "sh", "-ec", SLOW)
    replaced = replace_keys(checkout)
    checkout.on_node(WRITER, "rm", "/usr/local/sbin/mount")
    checkout.on_node(WRITER, "sh", "-ec", REMOUNT)
    wrote = stop_writing(checkout)
    assert replaced == {*USES, "export.cold", "export.old", "mgr", "mds", "osd", "rgw", "ca"}
    assert checkout.on_node(WRITER, "cat", "/run/held") == "True"
    assert python(checkout, READER, CHECK, folder) == f"{wrote} 0"
    for node, kinds in nodes.items():
        for use in (use for use in USES if use.startswith(kinds)):
            assert (is_taken(checkout, node, use, OLD), is_taken(checkout, node, use, NOW)) == (False, True)
    clients = ("pgrep", "--count", "--full", "ceph-fuse .* -r /datasets ")
    wait_for(lambda: checkout.on_node(WRITER, *clients) == "1", "the old client ends")


@pytest.mark.parametrize("use", ["admin", "export.datasets", "export.objects"])
def test_keys_are_nobodys_to_read(checkout: Checkout, use: str) -> None:
    key = (checkout.files / "secrets" / f"storage-train-{use}").read_text().strip()
    folders = [
        checkout.files,
        checkout.folder / ".causeway" / "pulumi",
        checkout.folder / ".causeway" / "logs",
    ]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    told = [file for file in [*files, checkout.declaration] if key.encode() in file.read_bytes()]
    assert {file.parent for file in told} == {checkout.files / "secrets"}
    assert key not in checkout.run(
        "exec", "ansible-inventory", "-i", f"inventories/{checkout.stack}", "--list"
    )


def test_nothing_differs_and_nothing_is_left_to_do(checkout: Checkout) -> None:
    checkout.run("exec", "causeway", "drift", checkout.stack)
    assert checkout.changes() == {}


def test_an_osd_that_is_killed_under_writes_loses_nothing(checkout: Checkout) -> None:
    folder = f"{FOLDER}/killed"
    start_writing(checkout, folder)
    wait_for(lambda: checkout.on_node(READER, "ls", folder).count("\n") >= 3, "something was written")
    before = checkout.on_node(NODES[1], "pidof", "ceph-osd")
    kill(checkout, NODES[1], "ceph-osd")
    now = ("sh", "-c", "pidof ceph-osd || true")
    wait_for(lambda: checkout.on_node(NODES[1], *now) not in ("", before), "it is started again")
    wait_for(lambda: is_whole(checkout), "everything is whole again")
    wrote = stop_writing(checkout)
    assert python(checkout, READER, CHECK, folder) == f"{wrote} 0"


@pytest.mark.long
def test_a_monitor_that_is_away_stops_nobody(checkout: Checkout) -> None:
    checkout.on_node(NODES[0], "systemctl", "stop", f"ceph-mon@{NODES[0]}")
    wait_for(lambda: len(status(checkout, NODES[1]).get("quorum", ())) == 2, "the others go on")
    checkout.on_node(WRITER, "sh", "-ec", f"echo on > {FOLDER}/without")
    assert checkout.on_node(READER, "cat", f"{FOLDER}/without").strip() == "on"
    checkout.on_node(NODES[0], "systemctl", "start", f"ceph-mon@{NODES[0]}")
    wait_for(lambda: is_whole(checkout), "it is back")


def test_all_nodes_killed_at_once_come_back_by_themselves(checkout: Checkout) -> None:
    folder = f"{FOLDER}/dark"
    start_writing(checkout, folder)
    wait_for(lambda: checkout.on_node(READER, "ls", folder).count("\n") >= 3, "something was written")
    for node in NODES:
        checkout.on_node(node, "sh", "-c", "pkill --signal KILL '^ceph-' || true")
    wait_for(lambda: is_whole(checkout), "everything is whole again")
    wrote = stop_writing(checkout)
    assert wrote >= 3
    assert python(checkout, READER, CHECK, folder) == f"{wrote} 0"


def ask_an_osd(checkout: Checkout, *words: str) -> None:
    """By the manager, which passes nothing on until it has heard of an OSD that was started again."""

    def taken() -> bool:
        try:
            checkout.on_node(NODES[0], "ceph", *words)
        except CalledProcessError:
            return False
        return True

    wait_for(taken, f"ceph {' '.join(words)} to be taken")


@pytest.mark.long
def test_a_bit_that_flipped_is_found_and_brought_back(checkout: Checkout) -> None:
    """One copy is spoilt behind the OSD's back: a deep scrub finds it, a repair makes it as the others."""
    image = "scratch/flip"
    rbd = "rbd --cluster train --id export.scratch"
    make = (
        "head -c 4194304 /dev/urandom > /run/flip; "
        f"{rbd} --no-progress import /run/flip {image}; sha256sum < /run/flip"
    )
    wrote = checkout.on_node(WRITER, "sh", "-ec", make)
    info = json.loads(checkout.on_node(WRITER, "sh", "-ec", f"{rbd} info --format json {image}"))
    name = f"{info['block_name_prefix']}.{0:016x}"
    where = ("ceph", "osd", "map", "scratch", name, "--format", "json")
    placed = json.loads(checkout.on_node(NODES[0], *where))
    group, osd = placed["pgid"], placed["acting"][1]
    holder = next(node for node in NODES if f"ceph-{osd}" in checkout.on_node(node, "ls", OSDS).split())
    spoil = (
        f"systemctl stop ceph-osd@{osd}; cd /run; "
        f"tool='ceph-objectstore-tool --data-path {OSDS}/ceph-{osd} --pgid {group} {name}'; "
        "$tool get-bytes spoilt; printf X | dd of=spoilt bs=1 seek=100 conv=notrunc status=none; "
        f"$tool set-bytes spoilt; chown -R ceph:ceph {OSDS}/ceph-{osd}; systemctl start ceph-osd@{osd}"
    )
    checkout.on_node(holder, "sh", "-ec", spoil)
    wait_for(lambda: is_whole(checkout), "the OSD is back")
    ask_an_osd(checkout, "pg", "deep-scrub", group)
    wait_for(lambda: warned(checkout, "OSD_SCRUB_ERRORS"), "the scrub finds it")
    assert checkout.on_node(WRITER, "sh", "-ec", f"{rbd} --no-progress export {image} - | sha256sum") == wrote
    ask_an_osd(checkout, "pg", "repair", group)
    wait_for(lambda: warned(checkout, "OSD_SCRUB_ERRORS") is False, "the repair ends")
    assert checkout.on_node(WRITER, "sh", "-ec", f"{rbd} --no-progress export {image} - | sha256sum") == wrote


def fill(checkout: Checkout, megabytes: int, *words: str) -> str:
    """Write so much more of a file that fills the storage; what `dd` says of it."""
    filler = (f"of={FOLDER}/filler", "bs=4M", f"count={megabytes // 4}", "conv=notrunc", *words)
    command = f"LC_ALL=C timeout 280 dd if=/dev/zero {' '.join(filler)} 2>&1 || true"
    return checkout.on_node(WRITER, "sh", "-c", command)


@pytest.mark.long
def test_full_osds_stop_writes_and_no_more(checkout: Checkout) -> None:
    """Clients are told, every OSD goes on and starts again, and what is deleted gives way to new files."""
    # Quickly while there is much room; then write after write, so that no OSD gets more than it holds.
    fill(checkout, 1200)
    assert "No space left on device" in fill(checkout, 2000, "oflag=append,sync")
    wait_for(lambda: warned(checkout, "OSD_FULL"), "the cluster to say so")
    (osd,) = (name.partition("-")[2] for name in checkout.on_node(NODES[2], "ls", OSDS).split())
    before = up_since(checkout, osd)
    assert before
    kill(checkout, NODES[2], "ceph-osd")
    wait_for(lambda: up_since(checkout, osd) > before and osds_up(checkout) == 3, "a full OSD starts again")
    assert checkout.on_node(READER, "sh", "-ec", f"sha256sum < {FOLDER}/shared")
    checkout.on_node(WRITER, "rm", f"{FOLDER}/filler")
    wait_for(lambda: warned(checkout, "OSD_FULL") is False, "there is room again")
    wait_for(lambda: is_whole(checkout), "what waited for room is whole again")
    checkout.on_node(WRITER, "sh", "-ec", f"echo more > {FOLDER}/again")
    assert checkout.on_node(READER, "cat", f"{FOLDER}/again").strip() == "more"


@pytest.mark.long
def test_a_node_that_is_lost_is_forgotten_and_replaced(checkout: Checkout) -> None:
    """Its OSD and its monitor's store are gone with it; what the new one holds comes from the others.

    A fourth node comes at once.
    """
    lost, wrote = NODES[2], checkout.on_node(READER, "sh", "-ec", f"sha256sum < {FOLDER}/shared")
    forget = ("exec", "causeway", "forget", checkout.stack, "--host")
    assert "is not gone" in checkout.run(*forget, lost, expect=2)
    run(["podman", "rm", "--force", "--time=0", names.node(checkout.stack, lost)])
    wait_for(lambda: osds_up(checkout) == 2, "the others notice")
    checkout.run(*forget, lost)
    assert lost not in checkout.on_node(NODES[0], "ceph", "osd", "tree")
    checkout.declare(declaration(checkout, spare=1, pools=BOTH_POOLS))
    BAKED.append(checkout.bake("tokyo-spare"))
    checkout.up()
    wait_for(lambda: osds_up(checkout) == 4 and is_whole(checkout), "everything is whole again")
    assert checkout.on_node(READER, "sh", "-ec", f"sha256sum < {FOLDER}/shared") == wrote


@pytest.mark.long
def test_nodes_that_the_others_cannot_do_without_are_not_drained(checkout: Checkout) -> None:
    wait_for(lambda: osds_up(checkout) == 4, "none is down: a place is where one is up")
    drain = f"python3 /usr/local/lib/causeway_ceph/cluster.py drain {' '.join(NODES[1:])}"
    said = checkout.on_node(NODES[0], "sh", "-c", f"{drain} 2>&1 && exit 1 || true")
    tree = checkout.on_node(NODES[0], "ceph", "osd", "tree")
    assert re.search(r"pool \S+ has 3 copies or parts, each in a host of its own, and 2 would", said), (
        said + tree
    )
    assert '"num_in_osds":4' in checkout.on_node(NODES[0], "ceph", "osd", "stat", "--format", "json")


def places(checkout: Checkout, host: str) -> list[int]:
    """The OSDs that lie in a host, as the cluster has it."""
    tree = json.loads(checkout.on_node(NODES[0], "ceph", "osd", "tree", "--format", "json"))
    return next((one["children"] for one in tree["nodes"] if one["name"] == host), [])


def watch_fourth(checkout: Checkout) -> None:
    """Have a node note how many groups the fourth one's OSD has, for as long as it is up."""
    found = places(checkout, FOURTH)
    assert len(found) == 1, checkout.on_node(NODES[0], "ceph", "osd", "tree")
    (osd,) = found
    checkout.on_node(NODES[0], "rm", "--force", "/run/last")
    checkout.on_node(NODES[0], "systemd-run", "--collect", "python3", "-c", LAST, str(osd))


def handed_over(checkout: Checkout, said: str) -> None:
    """The fourth node's OSD was empty when it went, and nothing of it is left among the others."""
    assert f"moving data: of {FOURTH} before it goes" in said
    assert FOURTH not in checkout.on_node(NODES[0], "ceph", "osd", "tree")
    assert checkout.on_node(NODES[0], "cat", "/run/last") == "0"
    wait_for(lambda: is_whole(checkout), "everything is where it belongs")
    assert "not repaired by the roles" not in said


@pytest.mark.long
def test_a_role_that_leaves_a_node_hands_over_what_it_holds_there_and_comes_back(checkout: Checkout) -> None:
    wrote = checkout.on_node(READER, "sh", "-ec", f"sha256sum < {FOLDER}/shared")
    watch_fourth(checkout)
    checkout.declare(declaration(checkout, spare=1))
    said = checkout.up()
    handed_over(checkout, said)
    assert "leaving: ceph from 1" in said
    assert checkout.on_node(FOURTH, "sh", "-c", "pgrep --list-name ceph || true") == ""
    assert checkout.changes() == {}
    checkout.declare(declaration(checkout, spare=1, pools=BOTH_POOLS))
    checkout.up()
    wait_for(lambda: osds_up(checkout) == 4 and is_whole(checkout), "it serves again")
    assert "osd-ceph-" in checkout.on_node(FOURTH, "ls", "/var/lib/ceph/aside"), "what it had is kept"
    assert checkout.on_node(READER, "sh", "-ec", f"sha256sum < {FOLDER}/shared") == wrote


def left_of(checkout: Checkout, export: str) -> list[str]:
    """What a node that uses the storage has of an export."""
    units, files = "/etc/systemd/system/causeway-cephfs-train-{0}.service", "/etc/ceph/train.*.{0}.keyring"
    named = (
        f"ls -d {units} {files} /mnt/train/{{0}} 2>/dev/null; pgrep -fl 'ceph-[f]use.*export.{{0}} ' || true"
    )
    return checkout.on_node(READER, "sh", "-c", named.format(export)).splitlines()


@pytest.mark.long
def test_a_node_that_is_declared_no_more_hands_over_what_it_holds_before_it_goes(checkout: Checkout) -> None:
    """With it goes an export: nodes keep nothing of that one, and all of the others."""
    datasets, old = (len(left_of(checkout, name)) for name in ("datasets", "old"))
    assert datasets == old > 3
    wrote = checkout.on_node(READER, "sh", "-ec", f"sha256sum < {FOLDER}/shared")
    watch_fourth(checkout)
    checkout.declare(declaration(checkout, old=False))
    said = checkout.up()
    handed_over(checkout, said)
    assert "what ceph_client makes no more from 2" in said
    assert left_of(checkout, "old") == []
    assert len(left_of(checkout, "datasets")) == datasets
    assert set(checkout.instances()) == {*NODES, WRITER, READER}
    assert checkout.on_node(READER, "sh", "-ec", f"sha256sum < {FOLDER}/shared") == wrote


REWRITE = """
ceph osd getcrushmap > /run/map
crushtool --decompile /run/map | sed '/^rule train.meta /,/^}/s/type host/type osd/
                                      /^rule train.cold /,/^}/s/type host/type osd/' > /run/map.txt
crushtool --compile /run/map.txt --outfn /run/map
ceph osd setcrushmap -i /run/map
"""
"""Copies of one pool, and parts of another, need no longer lie on different hosts."""


def test_what_somebody_changed_in_the_cluster_is_found_and_repaired(checkout: Checkout) -> None:
    (osd,) = (name.partition("-")[2] for name in checkout.on_node(NODES[1], "ls", OSDS).split())
    for change in (
        "osd pool set scratch size 2",
        "osd crush rule create-replicated together default osd",
        "osd pool set train.files crush_rule together",
        f"osd crush move osd.{osd} root=default host={NODES[0]}",
        "auth caps client.export.scratch mon 'allow *'",
        "auth get-or-create client.mallory mon 'allow *' osd 'allow *'",
        f"config set osd.{osd} osd_memory_target 2147483648",
        "fs set train joinable false",
    ):
        checkout.on_node(NODES[0], "ceph", *shlex.split(change))
    checkout.on_node(NODES[0], "sh", "-ec", REWRITE)
    said = checkout.run("exec", "causeway", "drift", checkout.stack, "--json", "--thorough", expect=3)
    assert "pool scratch: size=2" in said
    for pool in ("train.files", "train.meta", "train.cold"):
        assert re.search(rf"pool {pool}: [^\"]* copies=default/osd", said)
    assert f"OSD {osd}: host={NODES[0]} root=default" in said
    assert "client.export.scratch: mon allow *" in said
    assert f"option osd_memory_target of osd.{osd}: 2147483648" in said
    assert "file system train is failed" in said
    assert "identity client.mallory " in said
    inventory = f"inventories/{checkout.stack}"
    consent = ("-e", "repair_remove_added=true")
    checkout.run("exec", "ansible-playbook", "playbooks/repair.yml", "-i", inventory, *consent)
    assert "mallory" not in checkout.on_node(NODES[0], "ceph", "auth", "ls")
    assert "size: 3" in checkout.on_node(NODES[0], "ceph", "osd", "pool", "get", "scratch", "size")
    assert places(checkout, NODES[1]) == [int(osd)]
    wait_for(lambda: is_whole(checkout), "copies are where they belong again")
    checkout.run("exec", "causeway", "drift", checkout.stack)


def publish_newer(checkout: Checkout, number: str) -> None:
    """Have all nodes of the cluster find its packages once more, with a newer version."""
    serving, folder = NODES[0], "/srv/newer"
    version = checkout.on_node(serving, "dpkg-query", "--show", "--showformat=${Version}", "ceph-osd")
    (running,) = json.loads(checkout.on_node(serving, "ceph", "versions", "--format", "json"))["overall"]
    commit = running.split("(")[1].partition(")")[0]
    build = ("python3", "-c", NEWER, folder, version, commit, number)  # hundreds of megabytes once more
    run(within(names.node(checkout.stack, serving), *build), timeout_s=PATIENCE_S)
    serve = ("python3", "-m", "http.server", "--directory", folder, "8099")
    checkout.on_node(serving, "systemd-run", "--unit=newer", *serve)
    wait_for(lambda: checkout.on_node(serving, "ss", "-Hltn", "sport = :8099"), "packages to be served")
    source = f"deb [trusted=yes] http://{checkout.address(serving)}:8099 ./"
    for node in NODES:
        checkout.on_node(node, "sh", "-ec", f"echo '{source}' > /etc/apt/sources.list.d/newer.list")


def begun(checkout: Checkout) -> dict[str, list[tuple[int, str]]]:
    """Kind → when each of its daemons was started (µs on this machine's clock), and where."""
    found: dict[str, list[tuple[int, str]]] = {kind: [] for kind in KINDS}
    show = ("systemctl", "show", "--property=Id,ExecMainStartTimestampMonotonic", "ceph-*@*.service")
    for node in NODES:
        for unit in checkout.on_node(node, *show).split("\n\n"):
            fields = dict(line.split("=", 1) for line in unit.splitlines())
            kind = fields["Id"].removeprefix("ceph-").partition("@")[0]
            found[kind].append((int(fields["ExecMainStartTimestampMonotonic"]), node))
    return {kind: sorted(starts) for kind, starts in found.items()}


@pytest.mark.long
def test_newer_packages_start_daemons_again_in_order_under_writes(checkout: Checkout) -> None:
    """Monitors first, gateways last; what was set meanwhile is taken off, and no byte is lost."""
    publish_newer(checkout, "18.2.99")
    before, folder = begun(checkout), f"{FOLDER}/upgraded"
    start_writing(checkout, folder)
    checkout.declare(declaration(checkout, version="18.2.99"))
    checkout.up()
    wrote = stop_writing(checkout)
    after = begun(checkout)
    assert [len(after[kind]) for kind in KINDS] == [3, 2, 3, 2, 2]
    for kind, one in pairwise(KINDS):
        assert after[kind][-1] < after[one][0], (kind, one)
    assert max(starts[-1] for starts in before.values()) < min(starts[0] for starts in after.values())
    versions = json.loads(checkout.on_node(NODES[0], "ceph", "versions", "--format", "json"))["overall"]
    assert list(versions) == [checkout.on_node(NODES[0], "ceph", "--version")]
    assert "noout" not in checkout.on_node(NODES[0], "ceph", "osd", "dump", "--format", "json")
    assert "causeway/" not in checkout.on_node(NODES[0], "ceph", "config-key", "ls")
    wait_for(lambda: is_whole(checkout), "everything is whole")
    assert wrote >= 3
    assert python(checkout, READER, CHECK, folder) == f"{wrote} 0"
