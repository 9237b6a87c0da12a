"""Nodes of tests' stacks look for drift seldom, but where a test is about that."""

import re
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from infra.drift.inputs import options
from tests.integration.checkout import Checkout
from tests.integration.conftest import SELDOM_S, is_as_declared, look_seldom
from tests.steps import PROVES

ROOT = Path(__file__).resolve().parents[2]
TESTS = sorted((ROOT / "tests" / "integration").glob("test_*.py"))
STACK = "checkout: Checkout"
"""How a test file takes a stack."""
ABOUT_IT = {"drift_watch", "monitoring"}
WATCH = "causeway-drift-watch"
AS_DECLARED = re.compile(r"^AS_DECLARED = True$", re.MULTILINE)


def needs_the_watch(text: str) -> bool:
    """Whether a test file with a stack proves the watch or what shows it, or asks for it by its unit."""
    proven = PROVES.search(text)
    named = set(re.findall(r"\w+", proven[1])) if proven else set()
    return STACK in text and (bool(named & ABOUT_IT) or WATCH in text)


def test_a_stack_of_a_test_looks_seldom_by_a_variable_that_the_role_has(tmp_path: Path) -> None:
    look_seldom(Checkout(tmp_path, "t0", IPv4Network("10.208.0.0/16")))
    file = tmp_path / "inventories" / "t0" / "group_vars" / "all" / "seldom.yml"
    variables = yaml.safe_load(file.read_text())
    assert set(variables.values()) == {SELDOM_S}
    assert variables.keys() <= set(options("drift_watch"))
    defaults = yaml.safe_load((ROOT / "roles" / "drift_watch" / "defaults" / "main.yml").read_text())
    assert all(defaults[name] < SELDOM_S for name in variables)


def test_what_is_about_the_watch_has_it_as_a_user_has_it() -> None:
    files = {path.stem: path.read_text() for path in TESTS}
    needing = {name for name, text in files.items() if needs_the_watch(text)}
    assert needing >= {"test_drift", "test_drift_truth", "test_monitoring", "test_default_stack"}
    assert [name for name in sorted(needing) if not AS_DECLARED.search(files[name])] == []


@pytest.mark.parametrize(("module", "expected"), [({}, False), ({"AS_DECLARED": True}, True)])
def test_a_file_says_that_it_takes_its_stack_as_declared(module: dict[str, bool], expected: bool) -> None:
    assert is_as_declared(SimpleNamespace(**module)) is expected


def test_a_new_file_about_the_watch_is_found() -> None:
    taken = "def test_it(checkout: Checkout) -> None:\n"
    assert needs_the_watch(f'PROVES = ("existing", "drift_watch")\n{taken}')
    assert needs_the_watch(f'{taken}    checkout.on_node("a", "systemctl", "start", "{WATCH}")\n')
    assert not needs_the_watch(f'PROVES = ("existing", "drift")\n{taken}')
