"""Roles that a pool leaves out: taken by the others as before, and never one that something else asks for."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities import roles
from infra.checks import check
from infra.declaration import ClusterSpec
from infra.inventory.roles import role_hosts, role_order
from tests.unit.contracts import contract_of, declared

POOLS = [(region, pool) for region in (0, 1) for pool in range(len(declared()["regions"][region]["pools"]))]
SPARED = ("ipmi_exporter", "roce", "tcp_tuning")
excluded = st.dictionaries(st.sampled_from(POOLS), st.lists(st.sampled_from(SPARED), unique=True))


def excluding(wanted: dict[tuple[int, int], list[str]], data: dict[str, Any]) -> None:
    for (region, pool), names in wanted.items():
        data["regions"][region]["pools"][pool]["roles"] = {"exclude": names}


@given(excluded)
def test_only_the_pool_that_leaves_a_role_out_is_without_it(wanted: dict[tuple[int, int], list[str]]) -> None:
    whole, part = contract_of(), contract_of(lambda data: excluding(wanted, data))
    without = {}
    for (region, pool), names in wanted.items():
        place = declared()["regions"][region]
        without[f"{place['name']}-{place['pools'][pool]['name']}"] = names
    for role in role_order():
        spared = {name for name, host in whole.hosts.items() if role in without.get(host.pool, ())}
        assert set(role_hosts(part, role)) == set(role_hosts(whole, role)) - spared


def test_what_something_else_asks_for_is_not_left_out() -> None:
    data = ClusterSpec.model_validate(declared()).model_dump(mode="json", exclude_defaults=True)
    excluding({(0, 0): list(roles())}, data)
    found = [one for one in check(ClusterSpec.model_validate(data)) if one.rule == "roles-exclude"]
    refused = {one.message.split()[0] for one in found}
    assert refused == {*roles()} - {*SPARED}


def test_who_looks_for_drift_is_asked_for_where_there_is_monitoring() -> None:
    spec = ClusterSpec.model_validate(declared())
    watch = roles()["drift_watch"]
    assert watch.needed(spec)
    assert not watch.needed(spec.model_copy(update={"monitoring": None}))
