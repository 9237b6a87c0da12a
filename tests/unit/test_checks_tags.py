"""Where one of several models is chosen by a key, a wrong choice is answered with those that there are."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from infra.checks.schema import parse_spec, problems_of
from infra.declaration import ClusterSpec
from infra.ground.problem import DeclarationError, listing
from tests.unit.texts import DECLARATIONS, Path, with_text


class Etcd(BaseModel):
    kind: Literal["etcd"]
    members: int = 3


class Names(BaseModel):
    kind: Literal["consul", "zookeeper"]


class Robot(BaseModel):
    make: Literal["robot"]


class Disk(BaseModel):
    make: Literal["disk", "tape"]
    tb: int = 1


Found = Annotated[Etcd | Names, Field(discriminator="kind")]
Store = Annotated[Robot | Disk, Field(discriminator="make")]


class Shelf(BaseModel):
    store: Store | None = None


class Stack(BaseModel):
    discovery: Found | None = None
    several: tuple[Found, ...] | None = None
    named: dict[str, Found] = {}
    shelves: tuple[Shelf, ...] = ()


KINDS, MAKES = "etcd, consul, zookeeper", "robot, disk, tape"
PLACES: dict[str, tuple[Any, str]] = {
    "discovery.kind": (lambda tag: {"discovery": tag}, KINDS),
    "several[1].kind": (lambda tag: {"several": [{"kind": "etcd"}, tag]}, KINDS),
    "named.east.kind": (lambda tag: {"named": {"east": tag}}, KINDS),
    "shelves[0].store.make": (lambda tag: {"shelves": [{"store": tag}]}, MAKES),
}


def told(mapping: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Stack.model_validate(mapping)
    return [str(problem) for problem in problems_of(caught.value, Stack)]


@given(st.sampled_from(sorted(PLACES)), st.text(st.sampled_from("abcz-"), min_size=1, max_size=9))
def test_a_wrong_choice_is_answered_with_the_choices_of_that_place(place: str, word: str) -> None:
    mapping, allowed = PLACES[place]
    (said,) = told(mapping({place.rpartition(".")[2]: word}))
    assert said.startswith(f'{place}: "{word}" is not one of {allowed}')
    assert told(mapping({})) == [f"{place}: is missing; it is one of {allowed}"]


def test_the_nearest_choice_is_named() -> None:
    assert told({"discovery": {"kind": "zookeper"}}) == [
        f'discovery.kind: "zookeper" is not one of {KINDS}. Did you mean zookeeper?'
    ]


def test_what_is_wrong_inside_a_chosen_model_stands_at_its_key() -> None:
    wrong = {"kind": "etcd", "members": "many"}
    disk = {"make": "tape", "tb": "much"}
    assert told({"several": [wrong], "named": {"east": wrong}, "shelves": [{"store": disk}]}) == [
        'several[0].members: "many" is not a whole number',
        'named.east.members: "many" is not a whole number',
        'shelves[0].store.tb: "much" is not a whole number',
    ]


def models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def tagged_unions(model: type[BaseModel]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(key, its choices) of every field below a model that takes one of several models."""
    for name, field in model.model_fields.items():
        models = models_in(field.annotation)
        if len(models) > 1:
            yield name, tuple(tag for one in models for tag in get_args(one.model_fields["kind"].annotation))
        for one in models:
            yield from tagged_unions(one)


def at(tree: Any, path: Path) -> Any:
    """What stands at a place."""
    for key in path:
        tree = tree[key]
    return tree


def places(value: Any, key: str, path: Path = ()) -> Iterator[Path]:
    """Where a mapping stands under that key, or in a list under it."""
    for part in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        below = (*path, part)
        if key in (part, path[-1:] and path[-1]) and isinstance(value[part], dict):
            yield below
        yield from places(value[part], key, below)


@pytest.mark.parametrize(("key", "choices"), sorted(set(tagged_unions(ClusterSpec))))
def test_every_choice_of_a_declaration(key: str, choices: tuple[str, ...]) -> None:
    everywhere = [(tree, path) for tree in DECLARATIONS.values() for path in places(tree, key)]
    # Another model may have a field of that name, with other choices, and what is below it has none.
    found = [(tree, path) for tree, path in everywhere if at(tree, path).get("kind") in choices]
    assert found, f"no declaration in tests/unit/texts.py has {key}"
    for tree, path in found:
        for wrong, ending in (({"kind": "qqq"}, f'"qqq" is not one of {listing(choices)}'), ({}, "")):
            with pytest.raises(DeclarationError) as caught:
                parse_spec(with_text(tree, path, wrong))
            (problem,) = caught.value.problems
            assert re.sub(r"\[\d+\]", "", problem.path).endswith(f"{key}.kind")
            assert problem.message == (ending or f"is missing; it is one of {listing(choices)}")
