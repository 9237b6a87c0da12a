"""What an update verifies: all that something happened to, a witness of each pool, and nothing else."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import capabilities
from infra.components import verification as component
from infra.components.verification import VerificationLifecycle
from infra.errors import CausewayError
from infra.verify import due, verdicts
from infra.verify.verdicts import Check, Verdict, VerificationResult

ROLES = ("base", "names", "consul", "ceph", "ceph_client")
POOLS = {"t-control": ["c0"], "t-gpu": ["g0", "g1", "g2"], "s-storage": ["s0", "s1"], "s-empty": []}
HOSTS = [name for names in POOLS.values() for name in names]
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
some_roles = st.lists(st.sampled_from(ROLES), unique=True)
declarations = st.fixed_dictionaries(dict.fromkeys(HOSTS, some_roles))


@st.composite
def stacks(draw: st.DrawFn) -> tuple[dict[str, list[str]], VerificationResult]:
    """What is declared, and a verdict of any kind or none for each role."""
    declared = draw(declarations)
    checks = []
    for name, roles in declared.items():
        for role in roles:
            if verdict := draw(st.sampled_from([None, *Verdict])):
                checks += [Check(name, role, "one", Verdict.EFFECTIVE), Check(name, role, "two", verdict)]
        if draw(st.booleans()):
            checks.append(Check(name, "", "", draw(st.sampled_from([Verdict.UNREACHABLE, Verdict.FAILED]))))
    return declared, VerificationResult(tuple(checks), NOW)


@given(stacks(), st.sets(st.sampled_from(sorted(POOLS))), st.booleans())
def test_what_happened_is_verified_and_each_pool_has_a_witness(
    stack: tuple[dict[str, list[str]], VerificationResult], made: set[str], elsewhere: bool
) -> None:
    declared, kept = stack
    found = due.due(declared, POOLS, kept, made=made, elsewhere=elsewhere)
    unproven = due.unproven(declared, kept)
    for name, roles in unproven.items():
        assert set(roles) <= set(found[name]), "no good verdict, and not looked at"
    ran = {capabilities.owners()[role] for roles in unproven.values() for role in roles}
    ran |= {capabilities.owners()[role] for pool in made for name in POOLS[pool] for role in declared[name]}
    for pool, names in POOLS.items():
        whole = [name for name in names if set(found.get(name, ())) == set(declared[name])]
        if pool in made:
            assert whole == names
        elif elsewhere or set(names) & set(unproven):
            assert whole or not names, "nobody of it shows what the change did to its other roles"
        seen = {capabilities.owners()[role] for name in names for role in found.get(name, ())}
        there = [{capabilities.owners()[role] for role in declared[name]} for name in names]
        assert not names or any(ran & mine <= seen for mine in there), "a capability that ran has no witness"
    for name, roles in found.items():
        assert set(roles) <= set(declared[name])


@given(declarations)
def test_of_a_pool_where_nothing_happened_one_node_is_looked_at(declared: dict[str, list[str]]) -> None:
    checks = tuple(Check(name, role, "it", Verdict.EFFECTIVE) for name in HOSTS for role in declared[name])
    kept = VerificationResult(checks, NOW)
    assert {
        name for name, roles in due.due(declared, POOLS, kept, made=(), elsewhere=False).items() if roles
    } == set()
    found = due.due(declared, POOLS, kept, made=(), elsewhere=True)
    for names in POOLS.values():
        assert sum(bool(found.get(name)) for name in names) <= 1


@pytest.fixture
def kept_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(verdicts, "ROOT", tmp_path)
    return verdicts.kept_file("s")


def test_what_is_about_to_run_is_not_proven_any_more(kept_file: Path) -> None:
    declared = {"a": ["base", "names"], "b": ["base"]}
    checks = tuple(Check(name, role, "it", Verdict.EFFECTIVE) for name in declared for role in declared[name])
    verdicts.forget("s", {"a": ["names"]})
    assert not kept_file.exists(), "there was nothing to forget"
    kept_file.parent.mkdir(parents=True)
    kept_file.write_text(VerificationResult(checks, NOW).dump())
    verdicts.forget("s", {"a": ["names"], "c": ["base"]})
    assert due.unproven(declared, verdicts.read_result("s")) == {"a": ["names"]}
    assert verdicts.read_result("s").at == NOW


INPUTS: dict[str, Any] = {
    **{"stack": "s", "checks": "1", "ways": "1", "contract": "1", "overrides": "1"},
    "pools": dict.fromkeys(POOLS, "1"),
}


class Looked:
    """Stands in for the checks of a stack: notes what is chosen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kept: VerificationResult) -> None:
        self.chosen: dict[str, list[str]] = {}
        self.kept = kept
        self.declared = {name: ["base", "names"] for name in HOSTS}
        contract = type("Contract", (), {"pools": POOLS, "hosts": self._hosts()})
        monkeypatch.setattr(component, "standing_contract", lambda _stack: contract)
        monkeypatch.setattr(component, "verify_stack", self._look)

    @staticmethod
    def _hosts() -> dict[str, Any]:
        return {name: type("Host", (), {"pool": pool}) for pool, names in POOLS.items() for name in names}

    def _look(self, _stack: str, choose: Any, _say: object) -> VerificationResult:
        self.chosen = {name: list(roles) for name, roles in choose(self.declared, self.kept).items()}
        return self.kept


def good() -> VerificationResult:
    checks = (Check(name, role, "it", Verdict.EFFECTIVE) for name in HOSTS for role in ("base", "names"))
    return VerificationResult(tuple(checks), NOW)


@pytest.mark.parametrize("key", ["checks", "ways", "all"])
def test_what_concerns_every_node_is_verified_on_every_node(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    looked = Looked(monkeypatch, good())
    known = {} if key == "all" else {**INPUTS, key: "0"}
    VerificationLifecycle().ensure(INPUTS, known)
    assert looked.chosen == looked.declared


def test_what_was_made_is_verified_wholly_and_the_rest_by_witnesses(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Looked(monkeypatch, good())
    VerificationLifecycle().ensure(INPUTS, {**INPUTS, "pools": {**INPUTS["pools"], "t-gpu": "0"}})
    both = ["base", "names"]
    assert looked.chosen == {"c0": both, "g0": both, "g1": both, "g2": both, "s0": both}
    looked.kept = good().without({"g1": ["names"]})
    VerificationLifecycle().ensure(INPUTS, INPUTS)
    assert looked.chosen == {"c0": ["names"], "g1": both, "s0": ["names"]}
    looked.kept = good()
    VerificationLifecycle().ensure(INPUTS, {**INPUTS, "contract": "0"})
    assert looked.chosen == {"c0": both, "g0": both, "s0": both}


def test_a_stack_of_which_something_failed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Check("g2", "base", "time", Verdict.FAILED, "no clock")
    looked = Looked(monkeypatch, VerificationResult((*good().checks, failed), NOW))
    with pytest.raises(CausewayError, match="no clock"):
        VerificationLifecycle().ensure(INPUTS, INPUTS)
    assert "base" in looked.chosen["g2"]
