"""Where each machine of a list belongs: its region, its pool, and what the pool is for."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network

from infra.errors import BadInputError
from infra.ground.names import some
from infra.intake.hops import Hop, hops
from infra.intake.inventory import Grouped
from infra.intake.machine import ROLES, ListError, Row, complaint, label, role_of, word

WIDEST = 8
USUAL = 24
"""The network of a region that names none is at least so wide, where no other region is in the way."""
OF_A_POOL = ("gpus", "gpu_model", "nics", "nic_gbps")
WAY = ("ssh_jump", "ssh_jump_key")
OF_A_REGION = (
    "ssh_user", "ssh_key_file", "ssh_agent", "ssh_host_ca", "sudo", "sudo_password_secret", *WAY,
)  # fmt: skip
YES, NO = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Wishes:
    """What the user says for all machines of which the list does not say it."""

    region: str
    user: str = ""
    key_file: str = ""
    agent: bool = False
    jump: str = ""
    jump_keys: Mapping[str, str] = field(default_factory=dict)
    """Jump host, `HOST` or `HOST:PORT`, → its key."""
    host_ca: str = ""
    sudo: str = ""
    sudo_secret: str = ""
    gpus: str = ""
    gpu_model: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    cidrs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pool:
    """Machines of one kind, in the order of their racks."""

    name: str
    role: str
    values: Mapping[str, str]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Region:
    """A site with its pools."""

    name: str
    cidr: str
    values: Mapping[str, str]
    pools: Sequence[Pool]
    jumps: Sequence[Hop] = ()

    @property
    def rows(self) -> list[Row]:
        """All its machines."""
        return [row for pool in self.pools for row in pool.rows]


def of_groups(hosts: Iterable[Grouped], regions: Sequence[str], pools: Sequence[str]) -> list[Row]:
    """Rows with region and pool by the inventory's groups; ListError where those do not say which."""
    wrong: list[str] = []
    rows = []
    hosts = list(hosts)
    there = dict.fromkeys(group for host in hosts for group in sorted(host.above))
    if missing := [name for name in (*regions, *pools) if name not in there]:
        hint = f"there are: {some(map(word, there))}"
        raise BadInputError(f"no machine is in a group {word(missing[0])}", hint)
    for host in hosts:
        values = dict(host.row.values)
        here = [name for name in regions if name in host.above]
        if len(here) > 1:
            wrong.append(complaint(host.row, f"is in the regions {', '.join(map(word, here))}"))
        if here and "region" not in values:
            values["region"] = here[0]
        named = [name for name in (pools or host.groups) if name in host.above and name not in regions]
        if "pool" not in values and len(named) > 1:
            several = ", ".join(map(word, named))
            wrong.append(complaint(host.row, f"is in the groups {several}: --pools says which are pools"))
        if named:
            values.setdefault("pool", _without_region(named[0], values.get("region", "")))
        rows.append(Row(host.row.where, host.row.name, values))
    if wrong:
        raise ListError(wrong)
    return rows


def _without_region(pool: str, region: str) -> str:
    """`tokyo_gpu` in region tokyo is `gpu`: the region stands before it in host names anyway."""
    rest = label(pool).removeprefix(f"{label(region)}-") if region else label(pool)
    return rest or pool


def placed(rows: Sequence[Row], wishes: Wishes) -> list[Region]:
    """Regions and pools in the order of the list. ListError with every row that has no place."""
    wrong = [*_unusable(rows), *_alike(rows, wishes)]
    if wrong:
        raise ListError(wrong)
    regions = [
        _region(name, members, wishes, wrong)
        for name, members in _by(rows, lambda row: label(row.get("region") or wishes.region)).items()
    ]
    if wrong:
        raise ListError(wrong)
    return _with_networks(regions, wishes)


def _unusable(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        if template := next((key for key, value in row.values.items() if "{{" in value), None):
            yield complaint(row, f"{template} is a template, which only Ansible can fill in")
        elif _address(row) is None:
            found = word(row.get("address"))
            yield complaint(row, f"{found} is not an IPv4 address" if found else "it has no address")
        elif not label(row.get("pool") or row.get("role")):
            yield complaint(row, "nothing says its pool: a column or variable `pool`, or a group")
        elif row.get("region") and not label(row.get("region")):
            yield complaint(row, f"{word(row.get('region'))} has no letter of which to make a region's name")


def _address(row: Row) -> IPv4Address | None:
    try:
        return IPv4Address(row.get("address"))
    except ValueError:
        return None


def _alike(rows: Iterable[Row], wishes: Wishes) -> Iterator[str]:
    """Names that are different in the list and would be one in the declaration."""
    first: dict[tuple[str, ...], str] = {}
    for row in rows:
        region, pool = row.get("region") or wishes.region, row.get("pool") or row.get("role")
        for what, name, key in (
            ("regions", region, (label(region),)),
            ("pools", pool, (label(region), label(pool))),
        ):
            earlier = first.setdefault(key, name)
            if earlier != name:
                message = f"the {what} {word(earlier)} and {word(name)} would both be {label(name)}"
                yield complaint(row, message)


def _by(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _region(name: str, rows: list[Row], wishes: Wishes, wrong: list[str]) -> Region:
    default = {
        "ssh_user": wishes.user,
        "ssh_key_file": wishes.key_file,
        "ssh_agent": YES[0] if wishes.agent else "",
        "ssh_jump": wishes.jump,
        "ssh_host_ca": wishes.host_ca,
        "sudo": wishes.sudo,
        "sudo_password_secret": wishes.sudo_secret,
    }
    values = _shared(rows, OF_A_REGION, f"region {name}", default, wrong)
    values["ssh_agent"] = _said(values["ssh_agent"])
    way = values.pop("ssh_jump"), values.pop("ssh_jump_key")
    jumps = list(_jumps(rows[0], name, way, wishes, wrong))
    by_pool = _by(rows, lambda row: label(row.get("pool") or row.get("role")))
    pools = [_pool(pool, members, wishes, wrong) for pool, members in by_pool.items()]
    return Region(name, "", values, pools, jumps)


def _said(text: str) -> str:
    """A yes as YAML has it, nothing for a no; `check` says what else is none."""
    return YES[0] if text.lower() in YES else "" if text.lower() in NO else text


def _jumps(row: Row, region: str, said: tuple[str, str], wishes: Wishes, wrong: list[str]) -> Iterator[Hop]:
    """The jump hosts of a region (`said`: hosts, keys), each with its key where that is said."""
    jump, listed = said
    try:
        way = hops(jump)
    except ValueError as error:
        wrong.append(complaint(row, f"region {region}: ssh_jump: {error}"))
        return
    keys = [key.strip() for key in listed.split(",")] if listed else []
    if keys and len(keys) != len(way):
        message = f"ssh_jump_key has {len(keys)} keys, ssh_jump {len(way)} hosts"
        wrong.append(complaint(row, f"region {region}: {message}"))
    for hop, key in zip(way, [*keys, *[""] * len(way)], strict=False):
        known = wishes.jump_keys.get(f"{hop.address}:{hop.port}") or wishes.jump_keys.get(hop.address)
        yield replace(hop, key=key or known or "")


def _pool(name: str, rows: list[Row], wishes: Wishes, wrong: list[str]) -> Pool:
    said = _shared(rows, ("role",), f"pool {name}", {"role": wishes.roles.get(name, "")}, wrong)["role"]
    role = said or role_of(name) or ""
    if role not in ROLES:
        meant = f"{word(role)} is not one of {', '.join(ROLES)}" if role else "its role is not said"
        wrong.append(complaint(rows[0], f"pool {name}: {meant}: a column `role`, or --role {name}=ROLE"))
    default = {"gpus": wishes.gpus, "gpu_model": wishes.gpu_model} if role == "gpu" else {}
    values = _shared(rows, OF_A_POOL, f"pool {name}", default, wrong)
    if role == "gpu" and not (values["gpus"] and values["gpu_model"]):
        missing = " and ".join(key for key in ("gpus", "gpu_model") if not values[key])
        options = "--gpus 8 --gpu-model h100-sxm"
        wrong.append(complaint(rows[0], f"pool {name} has no {missing}: columns, or for all {options}"))
    return Pool(name, role, values, sorted(rows, key=lambda row: _natural(row.get("rack"))))


def _shared(
    rows: Sequence[Row], keys: Sequence[str], what: str, default: Mapping[str, str], wrong: list[str]
) -> dict[str, str]:
    """What all rows say alike; where one says something else than the first, it is named."""
    found = {}
    for key in keys:
        first = next((row for row in rows if row.get(key)), None)
        found[key] = first.get(key) if first else default.get(key, "")
        for row in rows:
            if first is not None and (row.get(key) or default.get(key, "")) != found[key]:
                other = word(row.get(key)) or "nothing"
                message = f"{key} is {other}, but {word(found[key])} at {first.where}; {what} has one"
                wrong.append(complaint(row, message))
    return found


def _natural(text: str) -> list[tuple[int, int, str]]:
    """r2 before r10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def _with_networks(regions: list[Region], wishes: Wishes) -> list[Region]:
    given = {label(name): cidr for name, cidr in wishes.cidrs.items()}
    needed = {one.name: _narrowest(one.rows) for one in regions if one.name not in given}
    far = [
        complaint(
            region.rows[0], f"region {region.name}'s addresses are too far apart: --cidr {region.name}=…"
        )
        for region in regions
        if region.name in needed and needed[region.name].prefixlen < WIDEST
    ]
    if far:
        raise ListError(far)
    nets = dict(needed)
    for name, network in needed.items():
        wide = network.supernet(new_prefix=USUAL) if network.prefixlen > USUAL else network
        if not any(wide.overlaps(other) for them, other in nets.items() if them != name):
            nets[name] = wide
    return [replace(one, cidr=given.get(one.name) or str(nets[one.name])) for one in regions]


def _narrowest(rows: Iterable[Row]) -> IPv4Network:
    """The smallest network in which no machine has the first or the last address."""
    addresses = [IPv4Address(row.get("address")) for row in rows]
    network = IPv4Network((int(min(addresses)), 32))
    while not all(_fits(address, network) for address in addresses):
        if network.prefixlen == 0:
            return network
        network = network.supernet()
    return network


def _fits(address: IPv4Address, network: IPv4Network) -> bool:
    return address in network and address not in (network.network_address, network.broadcast_address)
