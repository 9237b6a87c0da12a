"""Contract values as role variables, of all capabilities together.

The inventory plugin emits them on groups, at the lowest inventory precedence, so that anything in
`inventories/<stack>/group_vars/all/` overrides them. Values are plain JSON types.
"""

from typing import Any

from infra import capabilities
from infra.ground.contract import Contract
from infra.ground.groups import group_name


def role_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """Group name → the role variables its hosts share: `region_<name>` and `pool_<region>_<pool>`.

    Shape: `{"region_tokyo": {"base_timezone": "Asia/Tokyo", …}, "pool_tokyo_gpu": {…}}`.
    """
    names = [*(group_name("region", name) for name in contract.regions)]
    names += [group_name("pool", key) for key in contract.pools]
    groups: dict[str, dict[str, Any]] = {name: {} for name in names}
    for by_group in capabilities.variables(contract).values():
        for group, own in by_group.items():
            groups[group] |= own
    return groups
