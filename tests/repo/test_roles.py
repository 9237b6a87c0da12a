"""Rules every role keeps.

A role is a feature, with a play and a group, or a helper, which features include (infra.inventory.roles). The
features of one capability may share their scenarios, which are then beside one of them; a helper that serves
one capability alone is tried and verified by these. The other helpers share theirs likewise.
"""

from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra import capabilities
from infra.inventory.roles import helper_roles, role_order, roles_within
from tests import loaded

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path for path in (ROOT / "roles").iterdir() if path.is_dir())
SCENARIOS = ("default", "alternative")
UNTRIED = {
    "dcgm_exporter": "its package cannot be had; tests/unit/test_dcgm_exporter.py holds what it renders",
    "grafana": "its packages cannot be had where tests run; tests/unit/test_grafana.py holds what it renders",
}
"""Roles that no scenario applies, and why: their README says that they were not tried."""


def readme_maker() -> ModuleType:
    return loaded.load(Path(__file__).with_name("role_readme.py"))


@cache
def load(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text())


def defaults(role: Path) -> dict[str, Any]:
    return dict(load(role / "defaults" / "main.yml") or {})


def spec_options(role: Path) -> dict[str, dict[str, Any]]:
    (entry,) = load(role / "meta" / "argument_specs.yml")["argument_specs"].values()
    return dict(entry["options"])


@cache
def served(role: Path) -> frozenset[str]:
    """The capabilities of the roles that a role is part of."""
    owners = capabilities.owners()
    return frozenset(owners[name] for name in serving(role))


@cache
def serving(role: Path) -> frozenset[str]:
    """The roles that a role is part of."""
    return frozenset(name for name in role_order() if role.name in roles_within(name))


@cache
def room(role: Path) -> frozenset[str]:
    """What shares scenarios: the roles of a capability, and the helpers that have none of their own."""
    return frozenset({"helpers"}) if helps_all(role) else served(role)


def helps_all(role: Path) -> bool:
    """Whether it is a helper that is tried by itself, as what a small role of the tests includes."""
    return role.name in helper_roles() and (len(served(role)) > 1 or (role / "molecule").exists())


def tried_by(role: Path, scenario: str) -> Path | None:
    """The file of the scenario that tries a role: its own, or one of its room's."""
    own = role / "molecule" / scenario / "molecule.yml"
    if own.exists():
        return own
    files = [other / "molecule" / scenario / "molecule.yml" for other in ROLES if room(other) == room(role)]
    wanted = {role.name} if helps_all(role) else serving(role)
    return next((file for file in files if file.exists() and wanted & features(file)), None)


def features(scenario: Path) -> set[str]:
    """The roles that a scenario applies."""
    groups = (group for platform in load(scenario)["platforms"] for group in platform["groups"])
    return {group.removeprefix("feature_") for group in groups}


HELPERS_OF_ONE = [role.name for role in ROLES if role.name in helper_roles() and not helps_all(role)]
"""Helpers that stand and fall with their capability's own scenarios."""


TRIED = [role for role in ROLES if role.name not in UNTRIED]
tried = pytest.mark.parametrize("role", TRIED, ids=lambda path: path.name)


@pytest.fixture(params=ROLES, ids=lambda path: path.name)
def role(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_every_role_is_a_feature_or_helps_one() -> None:
    assert {role.name for role in ROLES} == {*role_order(), *helper_roles()}


@pytest.mark.parametrize("helper", [name for name in helper_roles() if name not in HELPERS_OF_ONE])
def test_a_helper_is_included_by_its_entry_points_only(helper: str) -> None:
    role = ROOT / "roles" / helper
    assert not (role / "tasks" / "main.yml").exists(), "tests/molecule would take it for a feature"
    assert (role / "molecule" / "user" / "tasks" / "main.yml").exists(), "what its scenarios apply"
    for entry in load(role / "meta" / "argument_specs.yml")["argument_specs"]:
        assert (role / "tasks" / f"{entry}.yml").exists()


def test_the_order_of_roles_says_each_once_and_by_one_name() -> None:
    plays = load(ROOT / "playbooks" / "roles.yml")
    for play in plays:
        (role,) = (entry["role"] for entry in play["roles"])
        assert play["vars"] == {"causeway_role": role}
        assert play["tags"] == [role]
        for setting in ("hosts", "serial", "any_errors_fatal"):
            assert play[setting] == plays[0][setting], f"{role}: a repair would run it otherwise"
    assert len(set(role_order())) == len(plays)


def test_declared_defaults_are_the_defaults(role: Path) -> None:
    declared = {name: option["default"] for name, option in spec_options(role).items() if "default" in option}
    assert declared == defaults(role)


def test_every_option_has_a_type_and_a_meaning(role: Path) -> None:
    for name, option in spec_options(role).items():
        assert {"type", "description"} <= set(option), name
        assert option["type"] != "list" or "elements" in option, name
        assert "default" in option or option.get("required"), name


def test_variables_carry_the_roles_name(role: Path) -> None:
    own = load(role / "vars" / "main.yml") if (role / "vars" / "main.yml").exists() else {}
    assert [name for name in spec_options(role) if not name.startswith(f"{role.name}_")] == []
    assert [name for name in own if not name.startswith(f"__{role.name}_")] == []


@tried
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_both_scenarios_exist(role: Path, scenario: str) -> None:
    file = tried_by(role, scenario)
    assert file
    if role.name not in HELPERS_OF_ONE:
        assert role.name in features(file)
    for name in features(file):
        assert room(ROOT / "roles" / name) == room(role), f"{name} is another capability's"


@pytest.mark.parametrize("name", UNTRIED)
def test_a_role_that_was_not_tried_says_so(name: str) -> None:
    assert not (ROOT / "roles" / name / "molecule").exists(), "then it is tried"
    assert "**Written, not tried**" in (ROOT / "roles" / name / "README.md").read_text()
    assert (ROOT / "tests" / "unit" / f"test_{name}.py").exists(), "what can be held without it"


@tried
def test_the_default_scenario_sets_no_variable(role: Path) -> None:
    file = tried_by(role, "default")
    assert file
    assert "provisioner" not in load(file)


@pytest.mark.parametrize("name", [role.name for role in TRIED if role.name not in HELPERS_OF_ONE])
def test_the_alternative_scenario_changes_most(name: str) -> None:
    file = tried_by(ROOT / "roles" / name, "alternative")
    assert file
    inventory = load(file)["provisioner"]["inventory"]
    changed = dict(inventory["group_vars"][f"feature_{name}"])
    for of_host in inventory.get("host_vars", {}).values():
        changed |= {key: value for key, value in of_host.items() if key.startswith(f"{name}_")}
    values = defaults(ROOT / "roles" / name)
    assert {name for name in changed if not name.startswith("ansible_")} <= set(values)
    different = [name for name in values if name in changed and changed[name] != values[name]]
    assert len(different) > 0.8 * len(values)


@pytest.mark.parametrize("name", [role.name for role in ROLES if role.name not in HELPERS_OF_ONE])
def test_the_role_is_verified(name: str) -> None:
    assert list((ROOT / "tests" / "verify" / name).glob("test_*.py"))


def test_the_readmes_table_is_current(role: Path) -> None:
    made = readme_maker().current(role)
    assert (role / "README.md").read_text() == made, "run: python tests/repo/role_readme.py"


def test_the_table_of_contents_is_short(role: Path) -> None:
    for tasks in (role / "tasks").glob("*.yml"):
        assert len(tasks.read_text().splitlines()) <= 80, f"{tasks}: split it"
