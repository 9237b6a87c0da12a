"""What the token of a kind of node may do, by Consul's rule that the longest prefix decides."""

import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loaded import load

ROLE = Path(__file__).resolve().parents[2] / "roles" / "consul"

words = st.sampled_from(["tokyo", "gpu", "a", "1", "10"])
kinds = st.lists(st.lists(words, min_size=2, max_size=4).map("-".join), min_size=1, max_size=6, unique=True)


@pytest.fixture(scope="module")
def access() -> ModuleType:
    """The Ansible module, beside which Ansible would put the role's own code."""
    return load(ROLE / "library" / "causeway_consul_access.py")


def may(rules: dict[str, Any], resource: str, name: str) -> str:
    """What the rules say of a name: those of the longest prefix, and nothing where there is none."""
    prefixes = {
        prefix: rule for prefix, rule in rules[f"{resource}_prefix"].items() if name.startswith(prefix)
    }
    return str(prefixes[max(prefixes, key=len)]["policy"]) if prefixes else "deny"


@given(kinds)
def test_a_kind_writes_its_own_nodes_and_no_other_kinds(access: ModuleType, names: list[str]) -> None:
    for kind in names:
        rules = json.loads(access.rules_of({"name": kind, "services": ["ssh"]}, names))
        for other in names:
            for number in (0, 1, 10):
                node, own = f"{other}-{number}", other == kind
                assert may(rules, "node", node) == ("write" if own else "read")
                assert may(rules, "agent", node) == ("write" if own else "deny")


class Copied:
    """An agent of a secondary datacenter, with what was copied so far; nothing is changed by way of it."""

    put = delete = None

    def __init__(self, policies: dict[str, str], tokens: dict[str, str]) -> None:
        self.answers: dict[str, Any] = {
            "/v1/acl/policies": [{"Name": name, "ID": name} for name in policies],
            "/v1/acl/tokens": [
                {"AccessorID": accessor, "Description": name, "Policies": [{"Name": name}]}
                for accessor, name in tokens.items()
            ],
            **{f"/v1/acl/policy/{name}": {"Rules": rules} for name, rules in policies.items()},
        }

    def get(self, path: str) -> Any:
        return self.answers[path]


@settings(max_examples=50)
@given(kinds, st.data())
def test_a_copy_is_whole_when_nothing_is_missing_old_or_too_much(
    access: ModuleType, names: list[str], data: st.DataObject
) -> None:
    granted = [{"name": name, "services": ["ssh"]} for name in names]
    holders = {name: {"accessor": f"a-{name}", "secret": "s"} for name in [*names, "replication"]}
    policies = {f"causeway-{kind['name']}": access.rules_of(kind, names) for kind in granted}
    policies |= {"causeway-replication": access.replication_rules(), "somebody's": "{}"}
    tokens = {f"a-{name}": f"causeway-{name}" for name in [*names, "replication"]}
    access.Access(Copied(policies, tokens), dry_run=True).require_copy(granted, holders)
    name = data.draw(st.sampled_from(names))
    change = data.draw(st.sampled_from(["policy", "rules", "token", "old token", "old policy"]))
    if change == "policy":
        del policies[f"causeway-{name}"]
    elif change == "rules":
        policies[f"causeway-{name}"] = "{}"
    elif change == "token":
        del tokens[f"a-{name}"]
    elif change == "old token":
        tokens["gone"] = "causeway-gone"
    else:
        policies["causeway-gone"] = "{}"
    with pytest.raises(access.ConsulError, match="not copied from the primary datacenter yet: "):
        access.Access(Copied(policies, tokens), dry_run=True).require_copy(granted, holders)


def test_a_right_that_comes_a_moment_later_is_waited_for_and_the_change_told_once(
    access: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = [access.ConsulError(403, "token lacks permission 'query:write'")] * 2

    class Late(Copied):
        def post(self, path: str, value: Any) -> None:
            if refused:
                raise refused.pop()
            self.answers[path] = [value]

    agent = Late({}, {})
    agent.answers["/v1/query"] = []
    granting = access.Access(agent, dry_run=False)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    access.patiently(granting.query, access.COPY_S)
    assert granting.changes == ["query"]
    assert agent.answers["/v1/query"] == [access.QUERY]
