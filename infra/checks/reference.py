"""The reference in docs/declaration.md, made from the models and the rules it describes.

`python -m infra.checks.reference` rewrites it.
"""

import inspect
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra import ROOT
from infra.capabilities import capabilities
from infra.checks.rules import ALL_RULES
from infra.declaration import ClusterSpec, NodePoolSpec, RegionSpec
from infra.declaration.base import Spec
from infra.declaration.described import described
from infra.declaration.places import places
from infra.ground.addresses import MAX_POOLS
from infra.ground.problem import listing
from infra.ground.rules.pools import GPUS_PER_NODE, NIC_GBPS

PAGE = ROOT / "docs" / "declaration.md"
BEGIN, END = "<!-- generated: fields and rules -->", "<!-- end of generated text -->"

UNITS = {
    "ms": "ms",
    "mbps": "Mbit/s",
    "pct": "%",
    "bytes": "bytes",
    "gbps": "Gbit/s",
    "gib": "GiB",
    "w": "W",
    "kw": "kW",
    "m": "m",
    "mib": "MiB",
    "min": "min",
    "h": "h",
    "s": "s",
    "days": "days",
}
OTHER_UNITS = {"m": "", "write_gib_s": "GiB/s", "nvme_read_mbps": "MB/s"}
"""Of names whose end says something else: parts of erasure coding, GiB in a second, what fio counts in."""
LIMITS_OF_RULES: dict[tuple[type[BaseModel], str], str] = {
    (ClusterSpec, "regions"): "at least 1",
    (RegionSpec, "pools"): f"1 to {MAX_POOLS}",
    (NodePoolSpec, "count"): "at least 1",
    (NodePoolSpec, "gpus"): f"0, {listing(GPUS_PER_NODE)}",
    (NodePoolSpec, "nics"): "at least 0",
    (NodePoolSpec, "nic_gbps"): listing(NIC_GBPS),
    **{field: limits for one in capabilities() for field, limits in one.limits.items()},
}
WORDS: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true`, `false`",
    IPv4Address: "IPv4 address",
    IPv4Interface: "IPv4 address with prefix length",
    IPv4Network: "IPv4 network",
}


def reference() -> str:
    """The generated part of the page: a table of fields per object, then the table of rules."""
    parts = [text for title, model in places().items() for text in _fields(title, model)]
    return "\n".join([BEGIN, "", "## Fields", "", *parts, *_rules(), END])


def page(current: str) -> str:
    """The page with its generated part made anew; ValueError when the markers are not there."""
    begin, end = current.index(BEGIN), current.index(END) + len(END)
    return current[:begin] + reference() + current[end:]


def _fields(title: str, model: type[BaseModel]) -> Iterator[str]:
    yield from (f"### {title}", "", _one_line(model.__doc__ or ""), "")
    yield from ("| field | unit | default | allowed | |", "|---|---|---|---|---|")
    yield from (*rows(model), "")


def rows(model: type[BaseModel]) -> Iterator[str]:
    """A line for each field of a model: name, unit, default, what is allowed, what it is."""
    for name, field in model.model_fields.items():
        cells = (f"`{name}`", unit(name), _default(field), _allowed(model, name, field))
        yield f"| {' | '.join(cells)} | {_one_line(described(model, name))} |"


def _rules() -> Iterator[str]:
    yield from ("## Rules", "", "| rule | | finds | because |", "|---|---|---|---|")
    for rule in ALL_RULES:
        finds, why = inspect.getdoc(rule.check), inspect.getdoc(type(rule))
        yield f"| `{rule.id}` | {rule.severity} | {_one_line(finds or '')} | {_one_line(why or '')} |"
    yield ""


def unit(name: str) -> str:
    """The unit that the end of a field's name says."""
    return OTHER_UNITS.get(name, UNITS.get(name.rpartition("_")[2], ""))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    if field.default in (None, (), {}):
        return "none"
    if isinstance(field.default, Spec):
        kind = getattr(field.default, "kind", None)
        return f"`{{kind: {kind}}}`" if kind else "its defaults"
    if isinstance(field.default, tuple):
        return listing(f"`{one}`" for one in field.default)
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def _allowed(model: type[BaseModel], name: str, field: FieldInfo) -> str:
    limits = LIMITS_OF_RULES.get((model, name)) or _limits(field)
    return f"{_words(field.annotation)}{': ' if limits else ''}{limits}"


def _limits(field: FieldInfo) -> str:
    """The bounds of a field in words: `at least 1, at most 65535`."""
    bounds: list[str] = []
    for bound in (*field.metadata, *_inner(field.annotation)):
        match bound:
            case Ge(ge=limit):
                bounds.append(f"at least {_number(limit)}")
            case Gt(gt=limit):
                bounds.append(f"more than {_number(limit)}")
            case Le(le=limit):
                bounds.append(f"at most {_number(limit)}")
            case Lt(lt=limit):
                bounds.append(f"less than {_number(limit)}")
    return ", ".join(dict.fromkeys(bounds))


def _inner(annotation: Any) -> Iterator[Any]:
    """What bounds a value where a field may also be unset, or is a list: `Annotated[int, Ge(1)] | None`."""
    if get_origin(annotation) is Annotated:
        for one in annotation.__metadata__:
            yield from one.metadata if isinstance(one, FieldInfo) else (one,)
    for argument in () if get_origin(annotation) is Literal else get_args(annotation):
        yield from _inner(argument)


def _number(limit: Any) -> str:
    return f"{limit:.10g}" if isinstance(limit, float) else str(limit)


def _words(annotation: Any) -> str:
    """A type in plain words; the choices where there are some."""
    if annotation in WORDS:
        return WORDS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    inner = [item for item in get_args(annotation) if item not in (type(None), Ellipsis)]
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in inner)
    if get_origin(annotation) is tuple:
        return f"list of {_plural(_words(inner[0]))}"
    if get_origin(annotation) is dict:
        return f"mapping of {_plural(_words(inner[0]))} to {_plural(_words(inner[1]))}"
    kinds = dict.fromkeys(_words(item) for item in inner if not hasattr(item, "func"))
    return " or ".join(kind for kind in kinds if kind)


def _plural(word: str) -> str:
    return {"text": "texts", "mapping": "mappings"}.get(word, re.sub(r"^list\b", "lists", word))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
