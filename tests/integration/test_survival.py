"""What `up` survives: what is refused before anything is made, kills, lost nodes, silent and broken hosts.

The tests are one story: first nothing can stand, then a stack stands that is killed, robbed and broken.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.providers.local import containers, daemons, sweep
from infra.providers.local.names import link_dir
from tests.integration.checkout import Checkout, region, said, two_regions
from tests.patience import wait_for

PROVES = ("local", "verification")

NODES = {"tokyo-control-0", "tokyo-gpu-0", "shanghai-control-0"}
ZONE = "/usr/share/zoneinfo/Asia/Seoul"
ONE_WAVE = [["tokyo", "shanghai"]]


def declare(checkout: Checkout, **changes: Any) -> None:
    checkout.declare(two_regions(checkout, waves=ONE_WAVE) | changes)


def refused(checkout: Checkout, expect: int = 1, env: dict[str, str] | None = None) -> str:
    """What an `up` says that cannot work, and that it made nothing."""
    printed = checkout.run("up", checkout.stack, expect=expect, env=env)
    assert "Traceback" not in printed
    assert sweep.leftovers(checkout.stack) == []
    return printed


def test_nonsense_is_refused_before_pulumi_starts(checkout: Checkout) -> None:
    regions = two_regions(checkout)["regions"]
    regions[0] |= {"timezone": "Asia/Tokio"}
    declare(checkout, regions=regions)
    printed = refused(checkout, expect=2)
    assert "regions[0].timezone" in printed
    assert "Asia/Tokyo" in printed, "the nearest name is offered"
    assert not list((checkout.folder / ".causeway" / "pulumi").rglob("*.json"))


def test_more_nodes_than_this_machine_holds(checkout: Checkout) -> None:
    many = region("tokyo", str(checkout.range), "Asia/Tokyo", {"control": 4000})
    declare(checkout, regions=[many], wan_links=[], waves=[])
    assert re.search(r"4000 nodes are declared, and this machine's free memory holds \d+", refused(checkout))


@pytest.fixture
def taken(checkout: Checkout) -> Iterator[str]:
    """An address of tokyo's range on an interface that is none of ours."""
    said("ip", "link", "add", "taken0", "type", "bridge")
    said("ip", "address", "add", checkout.cidr(0).replace(".0/20", ".9/24"), "dev", "taken0")
    said("ip", "link", "set", "taken0", "up")
    yield "taken0"
    said("ip", "link", "del", "taken0")


def test_a_range_that_is_taken(checkout: Checkout, taken: str) -> None:
    declare(checkout)
    printed = refused(checkout)
    assert re.search(rf"the range {checkout.cidr(0)} of the region tokyo is in use .*\b{taken}\b", printed)


def test_no_podman(checkout: Checkout, tmp_path: Path) -> None:
    for folder in ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"):
        for program in Path(folder).iterdir():
            if program.name != "podman" and not (tmp_path / program.name).exists():
                (tmp_path / program.name).symlink_to(program)
    declare(checkout)
    printed = refused(checkout, env={"PATH": f"{tmp_path}:/usr/local/go/bin"})
    assert "the program `podman` is missing" in printed


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Settings by which podman keeps everything on a disk of 64 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    said("mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk))
    storage = tmp_path / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{disk}/root"\nrunroot = "{disk}/run"\n')
    yield {"CONTAINERS_STORAGE_CONF": str(storage)}
    said("umount", "--lazy", str(disk))


def test_too_little_disk(checkout: Checkout, tiny_disk: dict[str, str]) -> None:
    declare(checkout)
    assert re.search(r"has 0\.\d GiB free, nodes need at least", refused(checkout, env=tiny_disk))


def test_up_adopts_what_killed_ones_have_made(checkout: Checkout) -> None:
    declare(checkout)
    process = checkout.start("up", checkout.stack)
    wait_for(checkout.instances, "the first node")
    checkout.kill(process)
    first = checkout.instances()

    process = checkout.start("up", checkout.stack)
    wait_for(lambda: "base :" in ansible_output(checkout), "the first task of a role")
    checkout.kill(process)
    second = checkout.instances()
    assert first.items() <= second.items()
    assert second.keys() == NODES

    process = checkout.start("up", checkout.stack)
    checkout.pulumi_of(process)
    printed = checkout.run("up", checkout.stack, expect=1)
    assert f"stack {checkout.stack} is being worked on by process {process.pid}" in printed
    checkout.finish(process)
    assert checkout.instances() == second, "nothing was made twice or anew"
    assert checkout.configured()[-1] == NODES
    assert checkout.changes() == {}


def ansible_output(checkout: Checkout) -> str:
    outputs = checkout.files.glob("runs/*/artifacts/*/stdout")
    return "".join(output.read_text(errors="replace") for output in outputs)


def test_a_lost_node_and_a_dead_link_come_back_and_nothing_else_changes(checkout: Checkout) -> None:
    before, runs = checkout.instances(), checkout.configured()
    containers.discard(f"cw-{checkout.stack}-tokyo-gpu-0")
    daemons.stop_all(link_dir(checkout.stack, "trans-sea"))
    printed = checkout.run("exec", "pulumi", "up", "--refresh", "--yes", "--stack", checkout.stack)
    assert "tokyo-gpu-0 is ready" in printed
    after = checkout.instances()
    assert {name for name in NODES if after[name] != before[name]} == {"tokyo-gpu-0"}
    assert checkout.configured()[len(runs) :] == [{"tokyo-gpu-0"}], "configured, and it alone"
    assert checkout.on_node("tokyo-gpu-0", "date", "+%Z") == "JST"
    far = json.loads((checkout.files / "contract.json").read_text())["hosts"]["shanghai-control-0"]["address"]
    checkout.on_node("tokyo-gpu-0", "ping", "-c", "5", "-i", "0.2", "-w", "10", far)
    assert checkout.changes() == {}


@pytest.mark.long
def test_broken_and_silent_hosts_are_named_and_the_others_finish(checkout: Checkout) -> None:
    before, runs = checkout.instances(), len(checkout.configured())
    regions = two_regions(checkout)["regions"]
    for declared in regions:
        declared["timezone"] = "Asia/Seoul"
    declare(checkout, regions=regions)
    checkout.on_node("tokyo-gpu-0", "systemctl", "stop", "ssh.socket", "ssh.service")
    checkout.on_node("tokyo-control-0", "mv", ZONE, "/root/zone")
    printed = checkout.up(expect=1)
    assert re.search(
        r"tokyo-control-0 failed at “base: Set the timezone”: .+\n.*log: \S+tokyo-control-0\.log", printed
    )
    assert "tokyo-gpu-0 unreachable" in printed
    assert checkout.on_node("shanghai-control-0", "date", "+%Z") == "KST", "the others finish"

    checkout.on_node("tokyo-control-0", "mv", "/root/zone", ZONE)
    printed = checkout.up(expect=1)
    assert "tokyo-gpu-0" in printed
    assert "unreachable" in printed
    assert checkout.on_node("tokyo-control-0", "date", "+%Z") == "KST"

    checkout.on_node("tokyo-gpu-0", "systemctl", "start", "ssh.service")
    checkout.up()
    assert checkout.on_node("tokyo-gpu-0", "date", "+%Z") == "KST"
    mended = {"tokyo-control-0", "tokyo-gpu-0"}
    assert checkout.configured()[runs:] == [NODES, mended, {"tokyo-gpu-0"}], "what is done stays done"
    assert checkout.instances() == before
