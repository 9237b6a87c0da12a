"""Which standing nodes a rollout of an image concerns, and in which order one is taken away."""

from argparse import Namespace
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.commands import image as command
from infra.components import departures, replacing
from infra.converge.runner import HostResult, RunResult
from infra.errors import BadInputError, CausewayError
from infra.ground.contract import Contract
from infra.providers.local import baked, containers, names, nodes, vm_image, vms
from infra.providers.local.baked import Baked
from tests.unit.test_images import contract

POOL = "tokyo-gpu"
IMAGE = Baked("0123456789ab", {"pool": POOL, "root": {"sha256": "0" * 64}}, 0.0, signed=True)


@pytest.fixture
def made_from(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Node → the image of its container; filled by the test."""
    found: dict[str, str] = {}
    monkeypatch.setattr(containers, "images", lambda *_: found)
    monkeypatch.setattr(vms, "images", lambda *_: {})
    return found


def test_nodes_of_another_image_are_named_in_order_and_those_that_do_not_stand_are_not(
    made_from: dict[str, str],
) -> None:
    declared = contract(count=12)
    names = [name for name, host in declared.hosts.items() if host.pool == POOL]
    made_from |= dict.fromkeys(reversed(names[1:]), "localhost/causeway-node:x")
    made_from |= {names[2]: IMAGE.tag, names[3]: str(vm_image.image_dir(IMAGE))}
    assert replacing.of_others(declared, POOL, IMAGE) == [names[1], *names[4:]]


def test_a_node_that_came_back_from_something_else_ends_the_rollout(made_from: dict[str, str]) -> None:
    declared = contract(count=3)
    going = [name for name, host in declared.hosts.items() if host.pool == POOL][:2]
    made_from |= {going[0]: IMAGE.tag, going[1]: "localhost/causeway-node:x"}
    replacing.require_made_from(declared, POOL, IMAGE, going[:1])
    with pytest.raises(CausewayError, match=f"not from image {IMAGE.name}: {going[1]}\n"):
        replacing.require_made_from(declared, POOL, IMAGE, going)


@pytest.mark.usefixtures("made_from")
def test_machines_that_somebody_has_are_not_made_anew() -> None:
    theirs = contract().model_copy(deep=True)
    object.__setattr__(theirs.regions["tokyo"], "makes_nodes", False)
    with pytest.raises(BadInputError, match="not made here"):
        replacing.of_others(theirs, POOL, IMAGE)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done, in order, instead of to a real stack."""
    steps: list[str] = []

    def noted(name: str) -> Any:
        return lambda *_, **__: steps.append(name)

    monkeypatch.setattr(replacing, "drained", lambda _: {})
    for name in ("remember_drained", "have_others"):
        monkeypatch.setattr(departures, name, noted(name))
    monkeypatch.setattr(replacing, "forget_all", noted("forget_all"))
    monkeypatch.setattr(nodes, "remove", noted("remove"))
    return steps


def leaving(monkeypatch: pytest.MonkeyPatch, result: RunResult | None) -> None:
    monkeypatch.setattr(replacing, "say_goodbye", lambda *_: result)


def a_storage_node(declared: Contract) -> str:
    return next(name for name in declared.hosts if "storage" in name)


def test_a_node_is_drained_before_it_says_good_bye_and_forgotten_once_it_is_gone(
    monkeypatch: pytest.MonkeyPatch, done: list[str]
) -> None:
    leaving(monkeypatch, None)
    replacing.take_away(contract(), ["tokyo-gpu-0"], {"ceph": {"hosts": []}, "nfs_server": {"hosts": []}})
    assert done == ["remember_drained", "have_others", "remember_drained", "remove", "forget_all"]


def test_who_was_drained_before_is_not_forgotten(monkeypatch: pytest.MonkeyPatch, done: list[str]) -> None:
    leaving(monkeypatch, None)
    remembered: list[Mapping[str, Collection[str]]] = []
    before = {"ceph": {"shanghai-storage-0"}}
    monkeypatch.setattr(replacing, "drained", lambda _: before)
    monkeypatch.setattr(departures, "remember_drained", lambda _, hosts: remembered.append(hosts))
    replacing.take_away(contract(), ["tokyo-gpu-0"], {"ceph": {"hosts": []}, "nfs_server": {"hosts": []}})
    assert all(hosts["ceph"] == before["ceph"] for hosts in remembered)
    assert done == ["have_others", "remove", "forget_all"]


def test_what_nobody_can_take_over_stays(monkeypatch: pytest.MonkeyPatch, done: list[str]) -> None:
    leaving(monkeypatch, None)
    declared = contract()
    why = {name: {"why": "its data", "hosts": []} for name in ("ceph", "nfs_server")}
    with pytest.raises(CausewayError, match=r"not made anew.* ceph on shanghai-storage-0 \(its data\)"):
        replacing.take_away(declared, [a_storage_node(declared)], why)
    assert done == []


def test_a_node_whose_roles_cannot_leave_stays(monkeypatch: pytest.MonkeyPatch, done: list[str]) -> None:
    host = HostResult(state="failed", task="Leave", message="it is the last server")
    failed = RunResult({"tokyo-gpu-0": host}, Path("log"), 1.0)
    assert failed.failed
    leaving(monkeypatch, failed)
    with pytest.raises(CausewayError, match="the last server"):
        replacing.take_away(contract(), ["tokyo-gpu-0"], {"ceph": {"hosts": []}, "nfs_server": {"hosts": []}})
    assert "remove" not in done


@pytest.mark.parametrize("kind", ["container", "vm"])
def test_what_may_fail_of_an_image_fails_before_the_first_node_is_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Machines start from a form of it, which takes a mirror and room. Nobody removes it meanwhile."""
    monkeypatch.setattr(names, "RUN_DIR", tmp_path)
    declared = contract(count=1)
    object.__setattr__(declared.pools[POOL], "node_kind", kind)
    steps: list[str] = []

    def full(*_: object) -> None:
        with pytest.raises(BadInputError, match="something is being made from"):
            baked.remove(IMAGE.name)
        raise CausewayError("no space left")

    monkeypatch.setattr(command, "_spec", lambda _: None)
    monkeypatch.setattr(command, "_contract", lambda *_: declared)
    monkeypatch.setattr(command, "standing_contract", lambda _: declared)
    monkeypatch.setattr(replacing, "image_of", lambda *_: IMAGE)
    monkeypatch.setattr(replacing, "of_others", lambda *_: ["tokyo-gpu-0"])
    monkeypatch.setattr(replacing, "take_away", lambda *_: steps.append("gone"))
    monkeypatch.setattr(baked, "require_whole", full if kind == "container" else lambda _: None)
    monkeypatch.setattr(vm_image, "ensure_image", full)
    with pytest.raises(CausewayError, match="no space left"):
        command._roll_out(Namespace(pool=POOL, stack="lab", replace=True, at_once=1))
    assert steps == []
