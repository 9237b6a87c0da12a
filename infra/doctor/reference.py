"""The table of ports in docs/machines.md, made from the endpoints of stacks that together have everything.

python -m infra.doctor.reference    writes it
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

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


FAR = "192.0.2.0/24"
"""The network of one more region."""
Data = dict[str, Any]


def everything() -> Iterator[ClusterSpec]:
    """The default stack with what it lacks, the same without a discovery, and machines with BMCs and GPUs."""
    spec = _data(ROOT / "Pulumi.local.yaml")
    for region in spec["regions"]:
        for pool in region["pools"]:
            pool["count"] = 2 if pool["role"] == "gateway" else pool["count"]
    for link in spec["wan_links"]:
        link["kind"] = "vpn"
    region = spec["regions"][0]["name"]
    ceph = spec["storage"][0]
    ceph["exports"] = [*ceph["exports"], {"kind": "rgw", "name": "objects", "quota_gib": 1}]
    nfs = {"name": "home", "region": region, "kind": "nfs", "pools": ["storage"], "backing": {"kind": "file"}}
    spec["storage"] += [{**nfs, "exports": [{"kind": "nfs", "name": "users", "quota_gib": 1}]}]
    spec["monitoring"]["grafana"] = {"key_file": "grafana.asc"}
    push = {"username": "builder", "password_secret": "registry-push"}
    spec["registries"] = [{"name": "images", "region": region, "pool": "control", "push": push}]
    yield ClusterSpec.model_validate(spec)
    without: Data = {"storage": [], **dict.fromkeys(("discovery", "monitoring", "acceptance"))}
    yield ClusterSpec.model_validate({**spec, **without, "registries": []})
    had = _data(ROOT / "examples" / "machines-you-have.yaml")
    (near,) = had["regions"]
    for host in _hosts(near):
        host |= {"name": None, "ssh_port": 22}
    stack = {"driver": "580.95.05", "cuda": "13.0", "dcgm": "4.2.3", "dcgm_exporter": "4.1.3"}
    for pool in near["pools"]:
        pool["gpu_stack"] = stack if pool["role"] == "gpu" else None
    far = {**deepcopy(near), "name": "far", "cidr": FAR}
    for number, host in enumerate(_hosts(far), 1):
        host["address"] = str(IPv4Network(FAR)[number])
    had["regions"].append(far)
    yield ClusterSpec.model_validate({**had, "monitoring": {"kind": "prometheus"}})


def _hosts(region: Data) -> Iterator[Data]:
    return (host for pool in region["pools"] for host in pool["hosts"])


def _data(file: Path) -> Data:
    return load_spec(file).model_dump(mode="json")


def table() -> str:
    """What has to be open, by what nodes are for."""
    rows: dict[tuple[str, ...], None] = {}
    for spec in everything():
        plan = make_plan(spec)
        found = _rows(build_contract(spec, plan, "local"), plan.endpoints, names_of(spec))
        rows |= {row: None for row in found if row[:3] not in {known[:3] for known in rows}}
    lines = [HEAD, ("---",) * len(HEAD), *sorted(rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def names_of(spec: ClusterSpec) -> dict[str, str]:
    """What a declaration calls its parts → what stands for that in the table."""
    return {
        **{link.name: "LINK" for link in spec.wan_links},
        **{storage.name: "STORAGE" for storage in spec.storage},
        **{region.name: "REGION" for region in spec.regions},
    }


def _rows(
    contract: Contract, endpoints: Iterable[Endpoint], names: dict[str, str]
) -> Iterator[tuple[str, ...]]:
    for one in (each for each in endpoints if each.network != "loopback"):
        listening, asking = (_regions(contract, hosts) for hosts in (one.on, one.sources))
        yield (
            generic(one.name, names),
            "/".join(one.protocols),
            ", ".join(map(str, one.ports)) or WITHOUT_PORTS,
            by_role(contract, one.on),
            by_role(contract, one.sources),
            WITHIN if listening == asking and len(asking) == 1 else IN[one.network],
        )


def generic(name: str, names: dict[str, str]) -> str:
    """An endpoint's name, with words for the parts of a declaration."""
    own = max((each for each in names if name.endswith(f"-{each}")), key=len, default="")
    return name.removesuffix(own) + names[own] if own else name


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
