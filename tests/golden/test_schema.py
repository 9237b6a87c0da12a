"""The JSON Schema for editors: current, valid, kind to every good declaration, and hard on nonsense."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from infra.checks import DeclarationError, load, parse_spec
from infra.checks.json_schema import FILE, declaration_schema
from infra.cli import main
from infra.declaration.places import places
from tests.golden.test_declarations import HERE, ROOT, cases, compare
from tests.unit.test_checks_fuzz import declarations, mutate, seeded

MODELINE = re.compile(r"^# yaml-language-server: \$schema=(\S+)$", re.MULTILINE)
USERS = [*ROOT.glob("Pulumi.*.yaml"), *ROOT.glob("examples/*.yaml")]
GOOD = [*USERS, *cases("good"), *cases("warnings"), *HERE.glob("fabrics/*.yaml")]
MISSED = {
    "cidr-host-bits": "arithmetic",
    "endpoints": "whether there can be such hosts and ports",
    "locale-form": "the language and the country are looked at, too",
    "number-not-finite": "JSON has no word for it",
    "paths": "this machine knows whose homes it has",
    "timezone-city-only": "the tz database knows",
    "timezone-misspelt": "the tz database knows",
    "timezone-old": "the tz database knows",
}
"""Single fields that only `causeway check` finds wrong, and why."""
MUTATIONS = 1000
VALIDATOR = Draft202012Validator(declaration_schema())


def read(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)


def complaints(tree: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(tree)]


def test_the_file_is_what_the_command_prints(capsys: pytest.CaptureFixture[str], update_golden: bool) -> None:
    assert main(["schema"]) == 0
    compare(FILE, capsys.readouterr().out, update_golden)
    Draft202012Validator.check_schema(json.loads(FILE.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_declarations_satisfy_it(path: Path) -> None:
    assert complaints(read(path)) == []
    spec = load(path).spec.model_dump(mode="json")
    assert complaints({"config": {"causeway:cluster": spec}}) == [], (
        "as a program writes it, with all defaults"
    )


def test_whatever_check_accepts_satisfies_it() -> None:
    """As it was understood: a number in quotes, which `pulumi config set` writes, is one to `check` only."""
    rng, originals, accepted = seeded(2), declarations(), 0
    for _ in range(MUTATIONS):
        try:
            spec = parse_spec(mutate(rng.choice(originals), rng))
        except DeclarationError:
            continue
        assert complaints(spec.model_dump(mode="json")) == []
        accepted += 1
    assert accepted > MUTATIONS // 20


def refused_for_one_field() -> Iterator[Path]:
    """Golden errors that no rule was needed for, and that are YAML."""
    for path in cases("errors"):
        try:
            read(path)
        except (YAMLError, ValueError, RecursionError):
            continue
        try:
            load(path)
        except DeclarationError as error:
            if all(problem.rule == "schema" for problem in error.problems):
                yield path


@pytest.mark.parametrize("path", list(refused_for_one_field()), ids=lambda path: path.stem)
def test_nonsense_is_refused(path: Path) -> None:
    assert bool(complaints(read(path))) != (path.stem in MISSED)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"config": {"causeway:clster": {}}}, "'causeway:cluster' is a required property"),
        ({"config": None, "encryptionsalt": "v1:"}, "None is not of type 'object'"),
        ({"encryptionsalt": "v1:"}, "'config' is a required property"),
        ({"confg": {}}, "'confg' was unexpected"),
        ("tokyo", "'tokyo' is not of type 'object'"),
        ({"name": "x", "regions": [{"name": "r", "cidr": "10.81.0.0", "pools": []}]}, "does not match"),
        (
            {"name": "x", "regions": [{"name": "r", "cidr": "10.0.0.0/16", "pools": [{"gpus": "8"}]}]},
            "'8' is",
        ),
    ],
)
def test_it_is_of_the_whole_file(tree: Any, said: str) -> None:
    assert said in "\n".join(complaints(tree))


def test_pulumi_may_write_its_own_beside_it() -> None:
    tree = read(ROOT / "Pulumi.local.yaml")
    assert complaints(tree | {"encryptionsalt": "v1:x", "secretsprovider": "passphrase"}) == []
    tree["config"]["aws:region"] = "ap-northeast-1"
    assert complaints(tree) == []


@pytest.mark.parametrize("path", USERS, ids=lambda path: path.stem)
def test_a_declaration_names_its_schema(path: Path) -> None:
    (named,) = MODELINE.findall(path.read_text(encoding="utf-8"))
    assert (path.parent / named).resolve() == FILE


def test_every_field_is_explained_with_its_unit() -> None:
    models = declaration_schema()["$defs"]
    assert set(models) == {model.__name__ for model in places().values()}
    for name, model in models.items():
        for field, schema in model["properties"].items():
            assert schema.get("description"), f"{name}.{field}"
    assert "Unit: Mbit/s." in models["WanLinkSpec"]["properties"]["bandwidth_mbps"]["description"]
    assert "Allowed: 0, 1, 2, 4, 8, 16." in models["NodePoolSpec"]["properties"]["gpus"]["description"]
