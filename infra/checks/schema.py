"""Plain mapping → `ClusterSpec`, with pydantic's errors said in the words of the declaration."""

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from infra.declaration import (
    ClusterSpec,
)
from infra.declaration.base import REFUSAL, Spec
from infra.declaration.described import described
from infra.declaration.places import places
from infra.ground.problem import DeclarationError, Problem, Source, listing, nearest, show

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
FORMS = re.compile(r"string_(pattern|too)_")
"""What is text, and not as it has to be."""
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
        raise DeclarationError((source or Source()).sort(problems_of(error, ClusterSpec))) from None


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """What `model` found wrong in a mapping, each finding in the words of the declaration."""
    return [_translate(detail, model) for detail in error.errors(include_url=False)]


def _translate(detail: ErrorDetails, model: type[BaseModel]) -> Problem:
    kind, found = detail["type"], detail["input"]
    path, owner, annotation = _place(detail["loc"], model)
    if kind == "extra_forbidden":
        return _unknown_key(path, owner)
    if kind == "missing":
        return Problem(path, f"is missing; {_what(owner)} needs it", allowed=_expected(path, owner))
    if kind.startswith("union_tag"):
        return _wrong_tag(path, detail, annotation)
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
        limit = show(context[key])
        wanted = words.format(limit)
        return f"is out of range: {wanted} is allowed", wanted, limit if "equal" in kind else None
    wanted = "" if FORMS.match(kind) else KINDS.get(kind.split("_")[0], "")
    if not wanted:  # a kind of error no field of ours gives: they have refusals of their own
        return "cannot be used here", "", None
    return f"is not {wanted}", wanted, None


def _unknown_key(path: str, owner: type[BaseModel]) -> Problem:
    key = path.rpartition(".")[2]
    known = list(owner.model_fields)
    allowed = listing(known)
    suggestion = nearest(key, known)
    if suggestion is not None:
        return Problem(path, f"{_what(owner)} has no such key", key, allowed, suggestion)
    homes = [model.what for model in places().values() if key in model.model_fields]
    hint = f"it is a key of {homes[0]}" if homes else f"its keys are {allowed}"
    return Problem(path, f"{_what(owner)} has no such key", key, allowed, hint=hint)


def _what(model: type[BaseModel]) -> str:
    return model.what if issubclass(model, Spec) else model.__name__


def _wrong_tag(path: str, detail: ErrorDetails, union: Any) -> Problem:
    """A key that chooses one of several models, such as `kind`, is missing or says none of them."""
    key = detail["ctx"]["discriminator"].strip("'")
    choices = [tag for model in _models(union) for tag in _tags(model, key)]
    given = detail["input"].get(key) if isinstance(detail["input"], Mapping) else None
    path, allowed = f"{path}.{key}".lstrip("."), listing(choices)
    if given is None:
        return Problem(path, f"is missing; it is one of {allowed}", allowed=allowed)
    return Problem(
        path, f"{show(given)} is not one of {allowed}", show(given), allowed, nearest(given, choices)
    )


def _place(location: tuple[int | str, ...], model: type[BaseModel]) -> tuple[str, type[BaseModel], Any]:
    """(path as the user would write it, the model that owns its last key, the type of what stands there)."""
    path = ""
    owner: type[BaseModel] = model
    annotation: Any = model
    for part in location:
        members = _models(annotation)
        if isinstance(part, int):
            path += f"[{part}]"
            annotation = _item(annotation)
            continue
        if len(members) > 1:  # pydantic names what was chosen; the file does not
            annotation = next(
                one for one in members if any(part in _tags(one, key) for key in one.model_fields)
            )
            continue
        path = f"{path}.{part}" if path else part
        if not members:
            annotation = _item(annotation)
            continue
        owner = members[0]
        known = owner.model_fields.get(part)
        annotation = known.annotation if known else None
    return path, owner, annotation


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models an annotation allows: one, those of a union, or none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for item in _members(annotation) for model in _models(item)]


def _item(annotation: Any) -> Any:
    """What each item of a list or a mapping is; None where the annotation allows neither."""
    if get_origin(annotation) in (tuple, list):
        return get_args(annotation)[0]
    if get_origin(annotation) is dict:
        return get_args(annotation)[1]
    return next((found for found in map(_item, _members(annotation)) if found is not None), None)


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType, Annotated) else ()


def _tags(model: type[BaseModel], key: str) -> tuple[str, ...]:
    """What `key` may say to choose this model among others."""
    field = model.model_fields.get(key)
    return get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()


def _expected(path: str, owner: type[BaseModel]) -> str:
    """What the docstring of a missing field says about it."""
    return described(owner, path.rpartition(".")[2])
