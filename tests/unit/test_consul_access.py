"""What the token of a kind of node may do, by Consul's rule that the longest prefix decides."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
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
