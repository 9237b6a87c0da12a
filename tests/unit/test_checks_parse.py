"""Declarations that come from Python or from Pulumi's config, without a file behind them."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from infra.checks import (
    ALL_RULES,
    DeclarationError,
    Problem,
    Source,
    check,
    load,
    load_spec,
    parse_spec,
    require_valid,
)
from infra.checks.schema import problems_of
from infra.declaration import ClusterSpec, FabricSpec, NodePoolSpec, SwitchSpec, WanLinkSpec
from infra.declaration.base import Spec
from infra.declaration.places import places
from infra.errors import BadInputError, ExitCode

ROOT = Path(__file__).parents[2]
ERRORS = ROOT / "tests" / "golden" / "errors"


def mapping() -> dict[str, Any]:
    spec: dict[str, Any] = load_spec(ROOT / "Pulumi.local.yaml").model_dump(mode="json")
    return spec


def changed(path: list[str | int], value: Any) -> dict[str, Any]:
    tree = copy.deepcopy(mapping())
    target: Any = tree
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return tree


def test_a_mapping_and_its_file_give_the_same() -> None:
    assert parse_spec(mapping()) == load_spec(ROOT / "Pulumi.local.yaml")


def test_every_object_can_be_named_when_a_key_of_it_is_wrong() -> None:
    def below(model: type[Spec]) -> set[type[Spec]]:
        kinds = model.__subclasses__()
        return set().union(*map(below, kinds)) if kinds else {model}

    assert below(Spec) == set(places().values())
    assert all(model.what for model in places().values())


def test_errors_without_a_file_have_no_line() -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_spec(changed(["regions", 0, "pools", 0, "role"], "contrl"))
    assert caught.value.exit_code is ExitCode.BAD_INPUT
    assert isinstance(caught.value, BadInputError)
    allowed = "control, gpu, storage, gateway"
    told = f'regions[0].pools[0].role: "contrl" is not one of {allowed}. Did you mean control?'
    assert str(caught.value) == told


def test_rules_take_the_lines_of_the_file() -> None:
    file = ROOT / "Pulumi.local.yaml"
    source, lines = load(file).source, enumerate(file.read_text().splitlines(), 1)
    with pytest.raises(DeclarationError) as caught:
        require_valid(parse_spec(changed(["regions", 1, "pools", 1, "gpus"], 7)), source)
    _, second = (number for number, line in lines if line.strip().startswith("gpus:"))
    assert [problem.line for problem in caught.value.problems if problem.severity == "error"] == [second]


def test_a_missing_key_points_at_its_parent() -> None:
    source = Source("f", {"": 1, "regions": 2, "regions[0]": 3, "regions[0].pools[11].name": 9})
    assert source.line_of("regions[0].pools[11].name") == 9
    assert source.line_of("regions[0].pools[1].name") == 3
    assert source.line_of("regions[7]") == 2
    assert source.line_of("waves") == 1


@pytest.mark.parametrize("value", [None, 7, "text", [], [["a", 1]]])
def test_what_is_no_mapping_is_refused(value: object) -> None:
    with pytest.raises(DeclarationError, match="a declaration is a mapping"):
        parse_spec(value)


def numeric_fields(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        if {int, float} & set(leaves(field.annotation)):
            yield name


def leaves(annotation: Any) -> Iterator[Any]:
    """The plain types in `Annotated[int, …] | None` and the like."""
    yield annotation
    for inner in get_args(annotation):
        yield from leaves(inner)


@pytest.mark.parametrize("model", [NodePoolSpec, WanLinkSpec, FabricSpec, SwitchSpec])
def test_no_number_takes_a_truth_value(model: type[BaseModel]) -> None:
    names = list(numeric_fields(model))
    assert len(names) >= 5
    for name in names:
        several = get_origin(model.model_fields[name].annotation) is tuple
        with pytest.raises(ValidationError) as caught:
            model.model_validate({name: [True] if several else True})
        assert "truth value" in str([error for error in caught.value.errors() if error["loc"][0] == name])


ODD: tuple[Any, ...] = (
    True, 0, -1, 0.5, 1e308, 10**30, float("inf"), "", "yes", "a b", "\ud800", "x" * 5000, [], [None],
    ["a b"], {}, {"a": "b"}, {"kind": "x"},
)  # fmt: skip
FOREIGN = ("input", "should", "valid", "boolean", "unable", "parse", "string", "cannot be used here")


def test_whatever_a_field_is_given_it_is_refused_in_our_own_words() -> None:
    for model in places().values():
        for name in model.model_fields:
            for odd in ODD:
                try:
                    model.model_validate({name: odd})
                except ValidationError as error:
                    for problem in problems_of(error, model):
                        said = problem.message.replace(str(odd), "").lower()
                        assert not [word for word in FOREIGN if word in said], (model, name, problem.message)


@pytest.mark.parametrize("word", ["true", "True", "false", True, False])
def test_a_truth_value_may_be_a_text(word: Any) -> None:
    """As `pulumi config set --path` may write it."""
    spec = parse_spec(changed(["storage", 0, "encrypt_wire"], word))
    assert getattr(spec.storage[0], "encrypt_wire", None) is (str(word).lower() == "true")


@pytest.mark.parametrize("word", ["yes", "on", "y", "t", "1", 1, 0, "off", None, []])
def test_nothing_else_is_a_truth_value(word: Any) -> None:
    with pytest.raises(DeclarationError):
        parse_spec(changed(["storage", 0, "encrypt_wire"], word))


LONG = (
    st.text(max_size=20) | st.text(st.characters(categories=("Cc", "Cf", "Zl", "Lo"))) | st.just("k" * 5000)
)


@given(path=LONG, message=LONG, hint=LONG, suggestion=st.none() | LONG, file=st.none() | LONG)
def test_a_finding_is_one_line_that_shows_as_it_is(
    path: str, message: str, hint: str, suggestion: str | None, file: str | None
) -> None:
    said = str(Problem(path, message, hint=hint, suggestion=suggestion, file=file and file[:20], line=7))
    assert said.isprintable()
    assert max(map(len, said.split())) < 300


@pytest.mark.parametrize("key", ["a\nb", "\x1b[31mred", "k" * 5000])
def test_a_key_that_is_no_word_makes_one_line(key: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        parse_spec(mapping() | {key: 1})
    (line,) = str(caught.value).splitlines()
    assert line.isprintable()
    assert len(line) < 1000


def test_numbers_as_text_are_taken() -> None:
    """`pulumi config set --path` writes 0.2 as text."""
    spec = parse_spec(changed(["wan_links", 0, "loss_pct"], "0.3"))
    assert spec.wan_links[0].loss_pct == 0.3


def test_a_spec_cannot_be_changed() -> None:
    spec = parse_spec(mapping())
    with pytest.raises(ValidationError):
        spec.name = "other"  # type: ignore[misc] # this is the point


def test_rules_have_names_of_their_own_and_a_golden_file_each() -> None:
    names = [rule.id for rule in ALL_RULES]
    assert len(set(names)) == len(names)
    seen = set()
    for path in [*ERRORS.glob("*.yaml"), *(ERRORS.parent / "warnings").glob("*.yaml")]:
        try:
            declaration = load(path)
        except DeclarationError:
            continue
        seen |= {problem.rule for problem in check(declaration.spec, declaration.source)}
    assert seen == set(names)


def test_warnings_do_not_stop_a_declaration() -> None:
    problems = require_valid(parse_spec(changed(["wan_links", 0, "loss_pct"], 20)))
    assert "link-loss-high" in {problem.rule for problem in problems}
    assert {problem.severity for problem in problems} == {"warning"}


def test_all_errors_of_a_phase_come_at_once() -> None:
    tree = changed(["regions", 0, "cidr"], "8.8.0.0/16")
    tree["wan_links"][0] |= {"rtt_ms": 0, "loss_pct": 100, "mtu_bytes": 9000}
    tree["regions"][1]["pools"][1] |= {"count": 0, "gpus": 3, "nic_gbps": 300}
    problems = [one for one in check(ClusterSpec.model_validate(tree)) if one.severity == "error"]
    assert {problem.rule for problem in problems} == {
        "cidr-private", "link-rates", "link-mtu", "pool-count", "gpus", "nics",
    }  # fmt: skip
    assert len(problems) == 7


def test_the_value_of_a_host_key_is_never_repeated() -> None:
    material = "bm90IGEga2V5"
    host = {"address": "10.81.0.5", "host_key": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{material}"}
    region = {
        "name": "r",
        "provider": {"kind": "existing"},
        "cidr": "10.81.0.0/16",
        "pools": [{"name": "p", "role": "control", "count": 1, "hosts": [host]}],
    }
    problems = check(parse_spec({"name": "c", "regions": [region]}))
    assert [problem.rule for problem in problems] == ["host-key"]
    assert material not in str([problem.as_json() for problem in problems])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 5000, "nested too deeply"),
        ("name: " + "9" * 5000 + "\nregions: []", "has 5000 characters"),
        ("name: 0x" + "f" * 5000 + "\nregions: []", "name: a huge number is not text"),
        ("\ufeffname: x\r\nregions: []\r\n", "regions: no region"),
    ],
)
def test_odd_texts(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(text.encode())
    with pytest.raises(DeclarationError) as caught:
        require_valid(load_spec(path))
    assert told in str(caught.value)
