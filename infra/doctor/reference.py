"""The table of ports in docs/machines.md, made from the endpoints of a stack that has everything.

python -m infra.doctor.reference    writes it
"""

from collections.abc import Iterable, Iterator

from infra import ROOT
from infra.checks.load import load_spec
from infra.declaration import ClusterSpec
from infra.doctor.sites import WITHOUT_PORTS
from infra.ground.contract import Contract
from infra.ground.endpoint import Endpoint, HostSet
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

PAGE = ROOT / "docs" / "machines.md"
BEGIN, END = "<!-- ports: made by python -m infra.doctor.reference -->\n", "<!-- end of ports -->"
HEAD = ("what listens", "protocol", "ports", "on", "asked by", "in")
IN = {"management": "regions and between them", "fabric": "the fabric", "wan": "the ends of links"}
WITHIN = "the region"


def everything() -> ClusterSpec:
    """The default stack, with two gateways in each region and a tunnel between them."""
    spec = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json")
    for region in spec["regions"]:
        for pool in region["pools"]:
            pool["count"] = 2 if pool["role"] == "gateway" else pool["count"]
    for link in spec["wan_links"]:
        link["kind"] = "vpn"
    return ClusterSpec.model_validate(spec)


def table() -> str:
    """What has to be open, by what nodes are for."""
    spec = everything()
    plan = make_plan(spec)
    contract = build_contract(spec, plan, "local")
    names = dict.fromkeys((link.name for link in spec.wan_links), "LINK")
    names |= dict.fromkeys((storage.name for storage in spec.storage), "STORAGE")
    rows = dict.fromkeys(_rows(contract, plan.endpoints, names))
    lines = [HEAD, ("---",) * len(HEAD), *sorted(rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rows(
    contract: Contract, endpoints: Iterable[Endpoint], names: dict[str, str]
) -> Iterator[tuple[str, ...]]:
    for one in (each for each in endpoints if each.network != "loopback"):
        listening, asking = (_regions(contract, hosts) for hosts in (one.on, one.sources))
        yield (
            _generic(one.name, names),
            "/".join(one.protocols),
            ", ".join(map(str, one.ports)) or WITHOUT_PORTS,
            by_role(contract, one.on),
            by_role(contract, one.sources),
            WITHIN if listening == asking and len(asking) == 1 else IN[one.network],
        )


def _generic(name: str, names: dict[str, str]) -> str:
    for own, word in names.items():
        name = name.replace(f"-{own}", f"-{word}")
    return name


def _regions(contract: Contract, hosts: HostSet) -> set[str]:
    return {contract.region_of(host) for host in contract.members(hosts)}


def by_role(contract: Contract, hosts: HostSet) -> str:
    """A set of hosts by what they are for."""
    members = contract.members(hosts)
    roles = dict.fromkeys(contract.pools[contract.hosts[host].pool].role for host in members)
    if roles.keys() == {pool.role for pool in contract.pools.values()}:
        return "every node"
    return ", ".join(f"{role} nodes" for role in roles)


def page(text: str) -> str:
    """The page with the table of today."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END, 1)[1]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
