"""The roles in the order in which they run, as `playbooks/roles.yml` has it, and the hosts that take them."""

from functools import cache

from ruamel.yaml import YAML

from infra import ROOT, capabilities
from infra.ground.contract import Contract

ORDER = ROOT / "playbooks" / "roles.yml"


@cache
def role_order() -> tuple[str, ...]:
    """Every role once. Each has a group `feature_<role>`: being in it applies the role."""
    plays = YAML(typ="safe").load(ORDER.read_text())
    return tuple(entry["role"] for play in plays for entry in play["roles"])


def role_hosts(contract: Contract, role: str) -> tuple[str, ...]:
    """The hosts that take a role, in natural order. ValueError for an unknown role."""
    known = capabilities.roles()
    if role not in known:
        raise ValueError(f"{role} is not one of {', '.join(role_order())}")
    return contract.members(known[role].hosts(contract))
