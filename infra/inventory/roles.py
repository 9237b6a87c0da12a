"""The roles in the order in which they run, as `playbooks/roles.yml` has it, and the hosts that take them."""

from functools import cache

from ruamel.yaml import YAML

from infra import ROOT

ORDER = ROOT / "playbooks" / "roles.yml"


@cache
def role_order() -> tuple[str, ...]:
    """Every role once. Each has a group `feature_<role>`: being in it applies the role."""
    plays = YAML(typ="safe").load(ORDER.read_text())
    return tuple(entry["role"] for play in plays for entry in play["roles"])
