"""Plain mapping → `ClusterSpec`, with pydantic's errors said in the words of the declaration."""

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from infra.declaration import (
    ClusterSpec,
    ConsulDiscovery,
    ExistingHost,
    ExistingProvider,
    FabricSpec,
    LinkEndSpec,
    LocalProvider,
    NodePoolSpec,
    RegionSpec,
    RoceSpec,
    SwitchSpec,
    TrafficClasses,
    WanLinkSpec,
)
from infra.declaration.base import REFUSAL
from infra.ground.problem import DeclarationError, Problem, Source, listing, nearest, show

WHAT: dict[type[BaseModel], str] = {
    ClusterSpec: "a cluster",
    RegionSpec: "a region",
    NodePoolSpec: "a node pool",
    WanLinkSpec: "a WAN link",
    LinkEndSpec: "the end of a link",
    TrafficClasses: "a table of classes",
    FabricSpec: "a fabric",
    RoceSpec: "the RoCE marking",
    SwitchSpec: "the switch",
    ExistingHost: "a host",
    LocalProvider: "the provider local",
    ExistingProvider: "the provider existing",
    ConsulDiscovery: "the service discovery",
}
KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "dict": "a mapping (key: value)",
    "model": "a mapping (key: value)",
}
COMPARISONS = {
    "greater_than_equal": ("ge", "at least {}"),
    "greater_than": ("gt", "more than {}"),
    "less_than_equal": ("le", "at most {}"),
    "less_than": ("lt", "less than {}"),
}


def parse_spec(mapping: object, source: Source | None = None) -> ClusterSpec:
    """The typed declaration of a plain mapping, such as the value Pulumi's config gives.

    Raises DeclarationError with everything that is wrong in a single field or key, at once.
    """
    if not isinstance(mapping, Mapping):
        raise DeclarationError(
            (source or Source()).sort(
                [Problem("", f"a declaration is a mapping with name and regions, this is {show(mapping)}")]
            )
        )
    try:
        return ClusterSpec.model_validate(mapping)
    except ValidationError as error:
        problems = [_translate(detail) for detail in error.errors(include_url=False)]
        raise DeclarationError((source or Source()).sort(problems)) from None


def _translate(detail: ErrorDetails) -> Problem:
    kind, found = detail["type"], detail["input"]
    path, owner = _place(detail["loc"])
    if kind == "extra_forbidden":
        return _unknown_key(path, owner)
    if kind == "missing":
        return Problem(path, f"is missing; {WHAT[owner]} needs it", allowed=_expected(path, owner))
    if kind.startswith("union_tag"):
        return _provider_kind(path, detail)
    message, allowed, suggestion = _wrong_value(detail)
    if found is None:
        return Problem(path, f"has no value{'; it is ' * bool(allowed)}{allowed}", "nothing", allowed)
    return Problem(path, f"{show(found)} {message}", show(found), allowed, suggestion)


def _wrong_value(detail: ErrorDetails) -> tuple[str, str, str | None]:
    """(message that follows the value, what is allowed, nearest right value)."""
    kind, found, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == REFUSAL:
        return context["message"], context["allowed"], context["suggestion"]
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        return f"is not one of {listing(choices)}", listing(choices), nearest(found, choices)
    if kind in COMPARISONS:
        key, words = COMPARISONS[kind]
        wanted = words.format(context[key])
        return f"is out of range: {wanted} is allowed", wanted, str(context[key]) if "equal" in kind else None
    wanted = KINDS.get(kind.split("_")[0], "")
    if not wanted:  # a kind of error no field of ours gave so far
        return f"cannot be used: {detail['msg'].lower()}", "", None
    return f"is not {wanted}", wanted, None


def _unknown_key(path: str, owner: type[BaseModel]) -> Problem:
    key = path.rpartition(".")[2]
    known = list(owner.model_fields)
    allowed = listing(known)
    suggestion = nearest(key, known)
    if suggestion is not None:
        return Problem(path, f"{WHAT[owner]} has no such key", key, allowed, suggestion)
    homes = [WHAT[model] for model in WHAT if key in model.model_fields]
    hint = f"it is a key of {homes[0]}" if homes else f"its keys are {allowed}"
    return Problem(path, f"{WHAT[owner]} has no such key", key, allowed, hint=hint)


def _provider_kind(path: str, detail: ErrorDetails) -> Problem:
    kinds = ["local", "existing"]
    given = detail["input"].get("kind") if isinstance(detail["input"], Mapping) else None
    if detail["type"] == "union_tag_not_found" or given is None:
        return Problem(f"{path}.kind", f"is missing; it is one of {listing(kinds)}", allowed=listing(kinds))
    message = f"{show(given)} is not one of {listing(kinds)}"
    return Problem(f"{path}.kind", message, show(given), listing(kinds), nearest(given, kinds))


def _place(location: tuple[int | str, ...]) -> tuple[str, type[BaseModel]]:
    """(path as the user would write it, the model that owns its last key)."""
    path = ""
    owner: type[BaseModel] = ClusterSpec
    annotation: Any = ClusterSpec
    for part in location:
        members = _models(annotation)
        if isinstance(part, int):
            path += f"[{part}]"
            annotation = next((item for item in get_args(annotation) if item is not Ellipsis), None)
            continue
        tagged = next((model for model in members if len(members) > 1 and _tag(model) == part), None)
        if tagged is not None:  # pydantic names the chosen kind of provider; the file does not
            annotation = tagged
            continue
        owner = members[0] if members else owner
        path = f"{path}.{part}" if path else part
        known = owner.model_fields.get(part)
        annotation = known.annotation if known else None
    return path, owner


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models an annotation allows: one, those of a union, or none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return [model for item in get_args(annotation) for model in _models(item)]
    return []


def _tag(model: type[BaseModel]) -> str:
    kind = model.model_fields.get("kind")
    choices = get_args(kind.annotation) if kind and get_origin(kind.annotation) is Literal else ()
    return str(choices[0]) if choices else ""


def _expected(path: str, owner: type[BaseModel]) -> str:
    """What the docstring of a missing field says about it."""
    known = owner.model_fields.get(path.rpartition(".")[2])
    return (known.description or "") if known else ""
