"""Whatever a declaration is turned into, the commands answer with 0 or 2 and never with a traceback."""

import copy
import importlib
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.cli import main
from infra.ground.yaml_source import Tree
from tests.seed import SEED

GOOD = Path(__file__).parents[1] / "golden" / "good"
LOAD = importlib.import_module("infra.checks.load")  # a function has its name in the package
MUTATIONS = 2000
TEXT_MUTATIONS = 400
AGREE = 5
"""Of so many mutations one is asked of `check` as well, and is read as YAML. That would be nearly all of the
time, and much the same for each: JSON in one line. What is wrong in YAML itself is for test_mutated_text."""
ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 7, 2**31, 10**30, 0.5, -0.0, 1e308, float("inf"), float("nan"), "", " ",
    "tokyo", "10.81.0.0/16", "0.0.0.0/0", "255.255.255.255/32", "::/0", "Asia/Tokyo", "../../etc/passwd",
    "\x00", "\ud800", "名前", "a" * 300, "!!", "[red]", "{}",
    [], {}, [[]], [None], ["tokyo"], {"kind": "existing"}, {"": ""}, [{}],
]  # fmt: skip
ODD_TEXTS = b"|||\t|:|- |{|]|\"|'|\n|#|&a |*a|!x |\xff|%|\x85|<<: |? ".split(b"|")


def seeded(offset: int) -> random.Random:
    return random.Random(SEED + offset)  # noqa: S311 - the same mistakes in every run, nothing secret


def spots(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a tree."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from spots(value[key])


def mutate(value: Any, rng: random.Random) -> Any:
    """The tree with one to three things wrong."""
    tree = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        places = list(spots(tree))
        if not places:
            return tree
        container, key = rng.choice(places)
        other, other_key = rng.choice(places)
        match rng.randrange(5):
            case 0:
                del container[key]
            case 1:
                container[key] = rng.choice(ODD_VALUES)
            case 2:
                container[key] = copy.deepcopy(other[other_key])
            case 3 if isinstance(container, dict):
                container[f"{key}{rng.choice('xs_ 0')}"] = container.pop(key)
            case 4 if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case _:
                container[key] = str(container[key])
    return tree


def dump(value: Any) -> str:
    """JSON, which is YAML as well, with YAML's words for what JSON cannot say."""
    text = json.dumps(value, ensure_ascii=True)
    return text.replace("Infinity", ".inf").replace("NaN", ".nan")


@contextmanager
def read_already(value: Any) -> Iterator[None]:
    """A declaration's file has these values, all in its first line, and is not read for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LOAD, "read_yaml", lambda *_: Tree(value, defaultdict(lambda: 1, {"": 1})))
        yield


def outcome(path: Path, capsys: pytest.CaptureFixture[str], *, both: bool) -> int:
    """The exit code of plan; of `both`, the one that check and plan agree on: each reads the file anew."""
    codes = {main(["plan", str(path), "--json"])} | ({main(["check", str(path)])} if both else set())
    printed = capsys.readouterr()
    assert "Traceback" not in printed.out + printed.err
    assert len(codes) == 1, path.read_text()
    return codes.pop()


def declarations() -> list[Any]:
    return [YAML(typ="safe", pure=True).load(path) for path in sorted(GOOD.glob("*.yaml"))]


def test_mutated_declarations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng, originals = seeded(0), declarations()
    seen = dict.fromkeys((0, 2), 0)
    for number in range(MUTATIONS):
        path = tmp_path / "Pulumi.fuzz.yaml"
        mutated, agree = mutate(rng.choice(originals), rng), number % AGREE == 0
        path.write_text(dump(mutated), encoding="utf-8")
        with nullcontext() if agree else read_already(mutated):
            code = outcome(path, capsys, both=agree)
        seen[code] += 1
        if code == 0:  # the tables are drawn for whatever is accepted
            with read_already(mutated):
                assert main(["plan", str(path)]) == 0
    assert seen[2] > MUTATIONS // 2
    assert seen[0] > MUTATIONS // 100, "hardly a mutation was accepted: are all of them the same mistake?"


def test_mutated_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = seeded(1)
    texts = [path.read_bytes() for path in sorted(GOOD.glob("*.yaml"))]
    for number in range(TEXT_MUTATIONS):
        text = bytearray(rng.choice(texts))
        for _ in range(rng.randint(1, 4)):
            where = rng.randrange(len(text))
            text[where : where + rng.choice((0, 1, 1, 20))] = rng.choice(ODD_TEXTS)
        path = tmp_path / "Pulumi.fuzz.yaml"
        path.write_bytes(bytes(text))
        assert outcome(path, capsys, both=number % AGREE == 0) in (0, 2)
