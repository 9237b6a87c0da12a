"""Where each declared model stands in a declaration, found from the models themselves."""

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from infra.declaration.base import Spec
from infra.declaration.cluster import ClusterSpec

ROOT_PLACE = "causeway:cluster"


@cache
def places() -> dict[str, type[Spec]]:
    """Place in words, as Markdown → the model there: `regions[].pools[]` in code quotes; each model once.

    What is told apart by its `kind` says so; fields of one object that have one model share a place.
    """
    found: dict[type[Spec], str] = {ClusterSpec: f"`{ROOT_PLACE}`"}
    _walk(ClusterSpec, "", found)
    return {place: model for model, place in found.items()}


def _walk(model: type[Spec], path: str, found: dict[type[Spec], str]) -> None:
    ours: dict[type[Spec], list[str]] = {}
    for name, field in model.model_fields.items():
        for inner, listed in _models(field.annotation):
            ours.setdefault(inner, []).append(f"{name}[]" if listed else name)
    for inner, (first, *more) in ours.items():
        if inner not in found:
            found[inner] = f"`{path}{first}`" + "".join(f" and `{name}`" for name in more) + _kind(inner)
            _walk(inner, f"{path}{first}.", found)


def _models(annotation: Any, listed: bool = False) -> Iterator[tuple[type[Spec], bool]]:
    """The models that a field may hold, and whether it holds many of them."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation, listed
    elif get_origin(annotation) is Annotated:
        yield from _models(get_args(annotation)[0], listed)
    elif get_origin(annotation) is not Literal:
        many = listed or get_origin(annotation) in (tuple, list, dict)
        for part in get_args(annotation):
            yield from _models(part, many)


def _kind(model: type[Spec]) -> str:
    field = model.model_fields.get("kind")
    kinds = get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()
    return f" with `kind: {kinds[0]}`" if len(kinds) == 1 else ""
