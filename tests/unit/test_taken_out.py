"""Machines of yours that are declared no more: who counts as one, and what is done with those that answer."""

from collections.abc import Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from infra.components import taken_out
from infra.components.taken_out import Machines
from infra.converge.progress import HostResult
from infra.drift.manifest import Manifest, RoleManifest, save_manifest
from infra.errors import CausewayError
from infra.ground.contract import Contract, HostContract, PoolContract, RegionContract
from infra.ground.identities import of_machine

STACK = "mine"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{}"
Fleet = Mapping[str, tuple[str, str]]
"""Name → (address, host key)."""

addresses = st.integers(1, 9).map(lambda number: f"10.0.0.{number}")
machines = st.lists(st.tuples(addresses, st.integers(0, 9)), max_size=6, unique_by=(lambda one: one[0],))


def named(names: list[str], those: list[tuple[str, int]]) -> Fleet:
    return {name: (address, KEY.format(key)) for name, (address, key) in zip(names, those, strict=False)}


Kind = TypeVar("Kind", bound=BaseModel)
fleets = st.builds(named, st.permutations([f"hall-gpu-{number}" for number in range(6)]), machines)


def contract_of(fleet: Fleet) -> Contract:
    """As much of a contract as counts here."""
    parts: dict[str, Any] = {
        "stack": STACK,
        "regions": {"hall": _part(RegionContract, provider="existing", makes_nodes=False)},
        "pools": {"hall-gpu": _part(PoolContract, region="hall")},
        "hosts": {
            name: HostContract(pool="hall-gpu", address=IPv4Address(one)) for name, (one, _) in fleet.items()
        },
        "sections": {},
    }
    return _part(Contract, **parts)


def _part(kind: type[Kind], **fields: Any) -> Kind:
    return kind.model_construct(**fields)


def declared(fleet: Fleet) -> Machines:
    return {name: {"address": address, "host_key": key} for name, (address, key) in fleet.items()}


def answering(
    monkeypatch: pytest.MonkeyPatch, was: Fleet, now: Fleet, *, had: bool = False, **has: set[str] | str
) -> list[str]:
    """Whom `up` takes roles off; each machine has its address and answers, but for those in HAS.

    HAD: whether roles came to them.
    """

    async def ask(_contract: Contract, hosts: list[str]) -> dict[str, set[str] | str]:
        return {name: has.get(name.replace("-", "_"), {was[name][0]}) for name in hosts}

    monkeypatch.setattr(taken_out, "_addresses", ask)
    identities = {name: of_machine(key) for name, (_, key) in was.items()}
    monkeypatch.setattr(taken_out, "load_identities", lambda _stack: identities)
    monkeypatch.setattr(
        taken_out, "recorded_roles", lambda _, names: {name: ["base"] for name in names if had}
    )
    return taken_out.answering(contract_of(was), declared(now))


def takes_on(name: str, was: Fleet, now: Fleet) -> bool:
    """Whether a machine of another name is to have this one: who has its address, else alone its key."""
    if name not in now:
        return False
    address, key = now[name]
    there, keys = {pair[0] for pair in now.values()}, [pair[1] for pair in now.values()]
    alone = keys.count(key) == [pair[1] for pair in was.values()].count(key) == 1
    return any(
        its == address or (its not in there and its_key == key and alone)
        for other, (its, its_key) in was.items()
        if other != name
    )


@given(was=fleets, now=fleets)
def test_a_machine_is_given_back_or_stays_and_no_name_is_anothers(was: Fleet, now: Fleet) -> None:
    keys = [key for _, key in (*was.values(), *now.values())]
    with pytest.MonkeyPatch.context() as patch:
        if taken := [name for name in was if takes_on(name, was, now)]:
            with pytest.raises(CausewayError, match=f"would be ({'|'.join(taken)}), "):
                answering(patch, was, now)
            return
        out = answering(patch, was, now)
    there = {address for address, _ in now.values()}
    for name, (address, key) in was.items():
        if address in there:
            assert name not in out, "it is declared"
        elif key not in [pair[1] for pair in now.values()] or keys.count(key) > 2:
            assert name in out, "nobody has its address, nor a key that is its alone"
        else:
            assert name not in out, "it has another address now"


A, B, C = ("10.0.0.1", KEY.format("a")), ("10.0.0.2", KEY.format("b")), ("10.0.0.3", KEY.format("c"))
THREE = {"hall-gpu-0": A, "hall-gpu-1": B, "hall-gpu-2": C}


def test_names_that_would_move_to_other_machines_are_refused_with_the_line_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(CausewayError) as refused:
        answering(monkeypatch, THREE, {"hall-gpu-0": B, "hall-gpu-1": C})
    assert (
        "10.0.0.2 is hall-gpu-1, and would be hall-gpu-0, which is the name of 10.0.0.1, and 1 more"
        in str(refused.value)
    )
    assert "{name: hall-gpu-1, address: 10.0.0.2, …}" in (refused.value.hint or "")
    assert answering(monkeypatch, THREE, {"hall-gpu-1": B, "hall-gpu-2": C}) == ["hall-gpu-0"]
    assert answering(monkeypatch, THREE, {"hall-gpu-0": A, "hall-gpu-1": B}) == ["hall-gpu-2"]


def test_a_machine_to_which_roles_came_is_not_called_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what came to it under the old name stayed for ever: in another pool it has other roles."""
    elsewhere = {"hall-gpu-0": A, "hall-gpu-1": B, "hall-storage-0": C}
    assert answering(monkeypatch, THREE, elsewhere) == []
    with pytest.raises(
        CausewayError, match=r"10\.0\.0\.3 is hall-gpu-2, and would be hall-storage-0: "
    ) as refused:
        answering(monkeypatch, THREE, elsewhere, had=True)
    assert "{name: hall-gpu-2, address: 10.0.0.3, …}" in (refused.value.hint or "")
    assert answering(monkeypatch, THREE, THREE, had=True) == []


def test_another_machine_under_an_old_name_sends_the_old_one_away(monkeypatch: pytest.MonkeyPatch) -> None:
    new = ("10.0.0.9", KEY.format("n"))
    assert answering(monkeypatch, THREE, THREE | {"hall-gpu-1": new}) == ["hall-gpu-1"]


def test_a_machine_with_another_address_or_more_of_them_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = THREE | {"hall-gpu-1": ("10.0.0.9", B[1])}
    assert answering(monkeypatch, THREE, moved) == [], "its key is its own"
    rekeyed = THREE | {"hall-gpu-1": ("10.0.0.9", KEY.format("n"))}
    both = {"10.0.0.2", "10.0.0.9"}
    assert answering(monkeypatch, THREE, rekeyed, hall_gpu_1=both) == [], "it says so itself"


def test_one_that_does_not_answer_is_named_and_keeps_its_roles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answering(monkeypatch, THREE, {"hall-gpu-0": A, "hall-gpu-1": B}, hall_gpu_2="no agent") == []
    said = capsys.readouterr().out
    assert (
        "hall-gpu-2 (10.0.0.3) is declared no more, and does not answer (no agent): it keeps nothing" in said
    )
    assert f"causeway forget {STACK} --host hall-gpu-2" in said


def test_roles_are_taken_off_and_then_the_others_forget(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("infra.drift.manifest.ROOT", tmp_path)
    roles = dict.fromkeys(("base", "consul"), RoleManifest())
    save_manifest(STACK, Manifest(host="hall-gpu-1", identity="host key", roles=roles))
    told: list[Any] = []

    class Result:
        failed = False
        hosts: ClassVar = {
            "gpu-1": HostResult("ok", left=('/mnt/a "b": failed: busy',)),
            "gpu-7": HostResult("ok", left=('/mnt/a "b": failed: busy', "disk: has data")),
        }

    def leave(_stack: str, due: Mapping[str, Any], *_: Any) -> Result:
        told.append(due)
        return Result()

    monkeypatch.setattr(taken_out, "take_leave", leave)
    monkeypatch.setattr(taken_out, "forget_all", lambda _contract, gone, *_: told.append(gone))
    taken_out.take_roles_off(contract_of(THREE), [], {})
    assert told == []
    taken_out.take_roles_off(contract_of(THREE), ["hall-gpu-1", "hall-gpu-2"], {})
    assert told == [{"hall-gpu-1": ["base", "consul"]}, ["hall-gpu-1", "hall-gpu-2"]]
    printed = capsys.readouterr().out
    assert "hall-gpu-1 keeps what could not be given back of base, consul" in printed
    assert 'gpu-1, gpu-7: stays: /mnt/a "b": failed: busy\ngpu-7: stays: disk: has data\n' in printed
    monkeypatch.setattr(Result, "failed", True)
    monkeypatch.setattr(Result, "report", lambda _self: "hall-gpu-1 failed", raising=False)
    with pytest.raises(CausewayError, match="hall-gpu-1 failed"):
        taken_out.take_roles_off(contract_of(THREE), ["hall-gpu-1"], {})
    assert len(told) == 3, "nobody has forgotten it"
