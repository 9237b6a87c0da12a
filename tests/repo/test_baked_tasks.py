"""What roles have baked into images: every package, and nothing that is a host's own.

The tag `bake` stands on a task that makes the same of every node of a pool, in a root in which nothing runs
(docs/images.md).
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.checks import load
from infra.images.recipe import WRITES, baked, files_of, given_to, own_of_hosts, reach, recipe_of
from infra.inventory.groups import inventory_data
from infra.inventory.roles import role_hosts, role_order
from infra.inventory.steps import BLOCK, TAG, Step, steps, words_in
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

ROOT = Path(__file__).resolve().parents[2]
NOT_BAKED = {
    ("cuda_base", "Install what kernel modules are built with"): "they are of the kernel that the host runs",
    ("grafana", "Install Grafana"): "one host of a pool has it, from a repository that no other knows",
    (
        "wan_gateway",
        "Install what the role needs",
    ): "which packages those are depends on the gateway's own links",
}
"""Tasks that install packages on the host alone, and why."""
NOT_BAKED_THERE = {
    ("ceph", "Install HAProxy"): "which nodes have a manager is no part of an image",
    ("ipmi_exporter", "Install the package"): "whether a machine has a BMC is no part of an image",
}
"""Likewise, of what is baked elsewhere: the role that includes it, and why."""
MODULES = {
    "causeway_apt": "packages",
    "ansible.builtin.copy": "texts, files of the role, and files that the declaration names",
    "ansible.builtin.template": "its text and what it reaches are part of the image's name",
    "causeway_cuda_base": "packages of the GPU stack; what needs a kernel or a GPU it leaves to the node",
    "ansible.builtin.file": "links and directories",
    "ansible.builtin.assert": "stops a build that would come to nothing",
    "ansible.builtin.stat": "looks only",
    "community.general.locale_gen": "locales",
}
"""What can be baked: modules that need neither a service, nor the host, nor a secret."""
NEVER = ("notify", "delegate_to", "run_once", "no_log", "become_user", "async")
"""What a baked task does not say: it restarts nothing, works in the image alone, and keeps no secret."""
UNSEEN = {
    "prometheus": {"Install the package"},  # brought by an include
    "registry": {"Install HAProxy"},  # likewise
}
"""Baked tasks that `--list-tasks` does not show."""
PUBLIC = {"cuda_base_source_key": "the public key of a repository"}
"""Variables that sound like a secret, and are none."""
DECLARATIONS = ("Pulumi.local.yaml", *(f"examples/{name}" for name in ("training-two-planes.yaml",)))

BAKED = [(role, step) for role in role_order() for step in baked(role)]


def named(pair: tuple[str, Step]) -> str:
    return f"{pair[0]}: {pair[1].task['name']}"


def package_tasks() -> Iterator[tuple[str, str, bool]]:
    """Role, name and whether it is baked, of every task that installs packages."""
    for file in sorted(ROOT.glob("roles/*/tasks/**/*.yml")):
        if file.name != "leave.yml":
            for task, tagged in tasks_of(YAML(typ="safe").load(file.read_text()), tagged=False):
                if "causeway_apt" in task:
                    yield file.relative_to(ROOT / "roles").parts[0], task["name"], tagged


def tasks_of(items: Any, *, tagged: bool) -> Iterator[tuple[dict[str, Any], bool]]:
    for item in items or ():
        chosen = tagged or TAG in item.get("tags", ())
        yield item, chosen
        for part in BLOCK:
            yield from tasks_of(item.get(part), tagged=chosen)


def test_every_package_is_baked_or_says_why_not() -> None:
    found = {(role, name): tagged for role, name, tagged in package_tasks()}
    assert {task for task, tagged in found.items() if not tagged} == NOT_BAKED.keys()
    assert len(found) > 12


def test_packages_are_installed_also_where_lists_are_outdated() -> None:
    """By the action that fetches them then: a mirror drops a version's files once there is another one."""
    plain = [
        (file.relative_to(ROOT), task["name"])
        for file in sorted(ROOT.glob("roles/*/tasks/**/*.yml"))
        for task, _ in tasks_of(YAML(typ="safe").load(file.read_text()), tagged=False)
        for module in ("ansible.builtin.apt", "ansible.builtin.package")
        if task.get(module, {}).get("name") and task[module].get("state") != "absent"
    ]
    assert plain == []


def test_what_a_helper_installs_is_baked_where_it_is_included() -> None:
    """What an include brings is baked only where the include has the tag as well."""
    missed = {
        (role, str(step.task["name"]))
        for role in role_order()
        for step in steps(role)
        if "causeway_apt" in step.task and TAG in step.task.get("tags", ()) and not step.baked
    }
    assert missed == NOT_BAKED_THERE.keys()


@pytest.mark.parametrize("role", role_order())
def test_no_baked_task_waits_for_what_only_an_unbaked_one_finds(role: str) -> None:
    """There it is undefined, and the image is never made."""
    every = steps(role)
    asked = {word for step in every if step.baked for word in words_in(list(step.conditions))}
    assert not [step for step in every if step.task.get("register") in asked and not step.baked]


@pytest.mark.parametrize("pair", BAKED, ids=named)
def test_a_baked_task_can_be_done_in_a_root_where_nothing_runs(pair: tuple[str, Step]) -> None:
    task = pair[1].task
    assert pair[1].module in MODULES, "it needs a service, or the host"
    assert not set(NEVER) & task.keys()
    assert "lookup" not in words_in(pair[1].content), "what it reads would be no part of the image's name"
    asked = task[pair[1].module]
    if pair[1].module in WRITES and "content" not in asked:
        named = [file.name for file in files_of(pair[1])]
        assert asked["src"] in named or given_to(pair[1]), "its text would be no part of the image's name"


def test_no_baked_task_reaches_a_secret() -> None:
    """Secrets are named by where they are on the controller."""
    for role in role_order():
        reached = {*reach(role, {}), *(word for step in baked(role) for word in words_in(step.content))}
        found = [name for name in reached if re.search("secret|authority|_key$|password|token", name)]
        assert not {*found} - PUBLIC.keys(), role


@pytest.mark.parametrize("file", DECLARATIONS)
def test_no_baked_task_depends_on_the_host(file: str) -> None:
    spec = load(ROOT / file).spec
    contract = build_contract(spec, make_plan(spec), "local")
    inventory = inventory_data(contract, ROOT)
    for pool in contract.pools:
        hosts = [name for name, host in contract.hosts.items() if host.pool == pool]
        for role in role_order():
            if {*hosts} <= {*role_hosts(contract, role)}:
                assert own_of_hosts(role, inventory, hosts) == set(), f"{role} on {pool}"
        assert recipe_of(contract, pool, inventory).roles


def test_ansible_finds_the_same_tasks() -> None:
    command = ["ansible-playbook", "playbooks/roles.yml", "-i", "localhost,", "--tags", TAG, "--list-tasks"]
    environment = os.environ | {"ANSIBLE_LOCALHOST_WARNING": "False"}
    text = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    for play in re.split(r"\n +play #\d+ \(feature_", text)[1:]:
        role = play.partition(")")[0]
        listed = set(re.findall(rf"^ +(?:\w+ : )?(.*?)\tTAGS: \[.*\b{TAG}\b.*\]$", play, re.MULTILINE))
        ours = {str(step.task["name"]) for step in baked(role)}
        assert ours - UNSEEN.get(role, set()) == {name for name in listed if not included(role, name)}, role


def included(role: str, name: str) -> bool:
    """Whether this is an include: what it brings is compared, and not itself."""
    files = (ROOT / "roles" / role / "tasks").glob("*.yml")
    tasks = (
        task for file in files for task, _ in tasks_of(YAML(typ="safe").load(file.read_text()), tagged=False)
    )
    return any(task.get("name") == name and "ansible.builtin.include_role" in task for task in tasks)
