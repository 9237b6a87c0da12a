"""A role reads the variables that it declares, and no others: where they change, it runs again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, meta
from ruamel.yaml import YAML

from infra import capabilities
from infra.drift.inputs import options, sources_of
from infra.inventory.roles import role_order, roles_within

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
HOST = {"inventory_hostname", "ansible_host"}
"""Which machine it is."""
REACHED = {"ansible_connection", "ansible_ssh_pass", "ansible_password"}
"""How it is reached, beside the login user, which is an input."""
ANSIBLES = {
    *("ansible_check_mode", "ansible_facts", "ansible_managed", "ansible_playbook_python"),
    *("inventory_dir", "item", "omit", "role_path"),
}
"""What Ansible itself gives to every task."""
FUNCTIONS = {"lookup", "query", "range", "dict", "namespace", "undef"}
TOLD = {"forget_hosts", "forget_lossy", "forget_let_go", "forget_refill", "forget_until", "leave_node_goes"}
"""Which nodes are gone for good, or go: playbooks/forget.yml and leave.yml tell it, once."""
OTHERS = {
    *("hostvars", "groups"),
    *("ansible_play_hosts", "ansible_play_hosts_all", "ansible_play_batch", "play_hosts"),
}
"""Leads to other hosts' variables."""
ASKS_THE_RUN = {"artefact", "ceph", "cuda_base"}
"""Asks what other nodes of the run have found, of which nothing is declared: who has a file (it is the
controller's, whoever had it); whose daemons run an older program; whether packages came on the first."""
FREE_FORM = ("when", "failed_when", "changed_when", "until", "that", "loop_control")
"""Keys whose values are expressions without braces."""


class _Any(dict[str, Any]):
    """Has whatever is asked for: Ansible's own filters and tests are of no interest here."""

    def __contains__(self, _name: object) -> bool:
        return True

    def get(self, _name: object, _default: object = None) -> Any:
        return lambda value, *_more, **_named: value

    __getitem__ = get


TEMPLATES = Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"])  # noqa: S701 - nothing is rendered
TEMPLATES.filters = TEMPLATES.tests = _Any()


def load(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text())


def texts(value: Any, key: str = "") -> Iterator[str]:
    """Every template in tasks or variables; an expression as one."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item, key)
    elif isinstance(value, str):
        yield f"{{{{ {value} }}}}" if key in FREE_FORM and "{{" not in value else value


def made(value: Any) -> Iterator[str]:
    """The names that tasks bind themselves: results, facts, variables of a block, of a loop."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name in ("register", "loop_var", "index_var"):
                yield item
            elif name in ("vars", "set_fact", "ansible.builtin.set_fact"):
                yield from item
            yield from made(item)
    elif isinstance(value, list):
        for item in value:
            yield from made(item)


def read(template: str) -> set[str]:
    return meta.find_undeclared_variables(TEMPLATES.parse(template))


def variables_of(role: str) -> tuple[set[str], set[str]]:
    """The names that a role's files read, and those that they bind."""
    folder = ROOT / "roles" / role
    found, bound = set[str](), set[str]()
    for name in ("tasks", "handlers", "vars", "defaults"):
        for file in (folder / name).rglob("*.yml"):
            content = load(file) or {}
            bound |= set(made(content)) | (set(content) if name == "vars" else set())
            found |= {one for text in texts(content) for one in read(text)}
    for file in (folder / "templates").rglob("*.j2"):
        found |= read(file.read_text())
    return found, bound


@pytest.mark.parametrize("role", ROLES)
def test_a_role_reads_its_own_variables_only(role: str) -> None:
    found, bound = variables_of(role)
    foreign = (
        found - bound - sources_of(role).variables - HOST - REACHED - ANSIBLES - TOLD - OTHERS - FUNCTIONS
    )
    assert foreign == set(), f"{role}: declare it in argument_specs, or it is not run again when it changes"


@pytest.mark.parametrize("role", role_order())
def test_a_role_that_reads_others_says_what(role: str) -> None:
    asking = (each for each in roles_within(role) if each not in ASKS_THE_RUN)
    found = {name for each in asking for name in variables_of(each)[0]}
    said = capabilities.roles()[role].reads is not None
    assert bool(found & OTHERS) == said


def test_no_two_roles_have_a_variable_of_one_name() -> None:
    every = [name for role in ROLES for name in options(role)]
    assert sorted(every) == sorted(set(every))


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("{when: theirs == 1}", "theirs"),
        ("{assert: {that: [theirs is defined]}}", "theirs"),
        ("{debug: {msg: '{{ lookup(\"env\", theirs) }}'}}", "theirs"),
        ("{block: [{copy: {content: '{% if theirs %}x{% endif %}'}}]}", "theirs"),
    ],
)
def test_what_is_read_is_found_wherever_it_stands(task: str, name: str) -> None:
    content = [YAML(typ="safe", pure=True).load(task)]
    assert name in {one for text in texts(content) for one in read(text)}
