"""Placed machines as the text of a declaration; what `check` says of it, by the rows of the list."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.checks import DeclarationError, Problem, check
from infra.checks.load import parse
from infra.errors import shown
from infra.ground.rules.names import is_host_name
from infra.intake.hops import Hop
from infra.intake.machine import ListError, Row, complaint, word
from infra.intake.place import Pool, Region

PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._@+-]*")
NOT_TEXTS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}
SWITCHES = ("ssh_agent",)
NUMBER = re.compile(r"(0|[1-9][0-9]{0,9})(\.[0-9]{1,9})?")
KEY_LINE = re.compile(r"[a-z][a-z0-9@.-]+ AAAA[A-Za-z0-9+/]+={0,3}")
NETWORK = re.compile(r"[0-9]+(\.[0-9]+){3}(/[0-9]+)?")
UNLINKED = ("region-reached", "regions-connected")
HOST = re.compile(r"regions\[(\d+)]\.pools\[(\d+)]\.hosts\[(\d+)]")
PLACE = re.compile(r"regions\[(\d+)](?:\.pools\[(\d+)](?:\.hosts\[(\d+)])?)?")


@dataclass(frozen=True)
class Link:
    """A WAN link between two regions, in the words of whoever asks for it."""

    a: str
    b: str
    rtt_ms: str
    bandwidth_mbps: str


def declaration_text(cluster: str, regions: Sequence[Region], links: Sequence[Link], origin: str) -> str:
    """A whole `Pulumi.<stack>.yaml`."""
    lines = [
        "# yaml-language-server: $schema=docs/declaration.schema.json",
        f"# Written by `causeway init` from {word(origin)}. A name there that is no DNS label stands",
        "# beside: such a machine is called <region>-<pool>-<number>.",
        "config:",
        "  causeway:cluster:",
        f"    name: {_scalar(cluster)}",
        "    regions:",
        *(line for region in regions for line in _region(region)),
    ]
    if links:
        lines += ["    wan_links:", *(f"      - {_flow(_link(link))}" for link in links)]
    return "\n".join([*lines, ""])


def _link(link: Link) -> dict[str, str]:
    return {"name": f"{link.a}-{link.b}", **asdict(link)}


def _region(region: Region) -> Iterator[str]:
    provider = {"kind": "existing", **{key: value for key, value in region.values.items() if value}}
    yield f"      - name: {_scalar(region.name)}"
    yield from _provider(provider, region.jumps)
    yield f"        cidr: {_scalar(region.cidr)}"
    yield "        pools:"
    for pool in region.pools:
        yield from _pool(pool)


def _provider(values: Mapping[str, str], jumps: Sequence[Hop]) -> Iterator[str]:
    if not jumps:
        yield f"        provider: {_flow(values)}"
        return
    yield "        provider:"
    yield from (f"          {key}: {_scalar(value, key)}" for key, value in values.items())
    yield "          ssh_jump:"
    for jump in jumps:
        hop = {"address": jump.address, "ssh_port": jump.port, "ssh_user": jump.user, "host_key": jump.key}
        yield f"            - {_flow({key: value for key, value in hop.items() if value})}"


def _pool(pool: Pool) -> Iterator[str]:
    yield f"          - name: {_scalar(pool.name)}"
    yield f"            role: {_scalar(pool.role)}"
    yield f"            count: {len(pool.rows)}"
    for key, value in pool.values.items():
        if value:
            yield f"            {key}: {_scalar(value)}"
    yield "            hosts:"
    for row in pool.rows:
        host = {"name": row.name} if is_host_name(row.name) else {}
        host |= {key: row.get(key) for key in ("address", "ssh_port", "host_key") if row.get(key)}
        beside = "" if is_host_name(row.name) or row.name == host["address"] else word(row.name)
        beside = ", ".join(filter(None, (beside, _rack(row.get("rack")))))
        yield f"              - {_flow(host)}" + (f" # {beside}" if beside else "")


def _rack(name: str) -> str:
    return f"rack {word(name)}" if name else ""


def _flow(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {_scalar(value, key)}" for key, value in values.items()) + "}"


def _scalar(value: str, key: str = "") -> str:
    """Text as YAML has it: bare where nobody can take it for something else, or where that is meant."""
    if key in SWITCHES and value == "true":
        return value
    plain = PLAIN.fullmatch(value) and value.lower() not in NOT_TEXTS
    if plain or any(form.fullmatch(value) for form in (NUMBER, NETWORK, KEY_LINE)):
        return value
    return json.dumps(shown(value), ensure_ascii=False)


def checked(text: str, path: Path, regions: Sequence[Region]) -> list[Problem]:
    """The warnings of `check`. ListError with its errors, each by the row of the list that it is about."""
    try:
        declaration = parse(text, path)
        problems = check(declaration.spec, declaration.source)
    except DeclarationError as error:
        problems = list(error.problems)
    if errors := [problem for problem in problems if problem.severity == "error"]:
        unlinked = any(problem.rule in UNLINKED for problem in errors)
        hint = "--link A,B,MS,MBPS is a link between regions A and B" if unlinked else ""
        raise ListError((_by_row(problem, regions) for problem in errors), hint)
    return problems


def _by_row(problem: Problem, regions: Sequence[Region]) -> str:
    said = problem.message + (f"; {problem.hint}" if problem.hint else "")
    said = HOST.sub(lambda other: _row(other, regions).where, said)
    found = PLACE.match(problem.path)
    if found is None:
        link = re.match(r"wan_links\[(\d+)]\.?", problem.path)
        return f"--link, number {int(link[1]) + 1}: {said}" if link else f"{problem.path}: {said}"
    region = regions[int(found[1])]
    pool = region.pools[int(found[2])] if found[2] else None
    if pool is not None and found[3]:
        return complaint(_row(found, regions), f"{problem.path[found.end() :].lstrip('.')}: {said}")
    rows = pool.rows if pool is not None else region.rows
    what = f"pool {pool.name}" if pool is not None else f"region {region.name}"
    rest = problem.path[found.end() :].lstrip(".")
    return complaint(rows[0], f"{what}{f', {rest}' if rest else ''}: {said}")


def _row(found: "re.Match[str]", regions: Sequence[Region]) -> Row:
    return regions[int(found[1])].pools[int(found[2])].rows[int(found[3])]
