"""Units as roles have them: none that only a handler governs, none that a signal to read anew may end.

A run without a change records no unit of a handler's, and no scan looks there.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.capabilities import roles
from infra.inventory.roles import role_order, roles_within
from tests.unit.contracts import contract_of

ROOT = Path(__file__).resolve().parents[2]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir())
MODULES = {"systemd", "systemd_service", "service"}
TEMPLATED = re.compile(r"{{.*?}}")


def tasks_in(folder: Path) -> Iterator[dict[str, Any]]:
    """The tasks of all files below a folder, those in blocks among them."""
    for path in sorted(folder.glob("**/*.yml")):
        yield from flat(YAML(typ="safe", pure=True).load(path.read_text()) or [])


def flat(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Tasks, and those in blocks."""
    for item in items:
        parts = [item[part] for part in ("block", "rescue", "always") if part in item]
        yield from (task for part in parts for task in flat(part))
        if not parts:
            yield item


def units(task: dict[str, Any]) -> Iterator[str]:
    """The units that a task governs; what a variable stands for, as `*`."""
    for name, arguments in task.items():
        if name.rpartition(".")[2] not in MODULES or "name" not in arguments:
            continue  # without a name it only reads definitions again
        loop = task.get("loop")
        items = loop if isinstance(loop, list) and all(isinstance(x, str) for x in loop) else [None]
        for item in items:
            unit = arguments["name"] if item is None else re.sub(r"{{ *item *}}", item, arguments["name"])
            yield TEMPLATED.sub("*", unit if "." in unit else f"{unit}.service")
    for claim in (task.get("vars") or {}).get("causeway_governs", ()):
        if claim["kind"] == "unit":
            yield TEMPLATED.sub("*", claim["key"])


def only_by_handlers(role: Path) -> set[str]:
    """Units that a role's handlers govern and none of its tasks does."""
    done, handled = (
        {unit for task in tasks_in(role / part) for unit in units(task)} for part in ("tasks", "handlers")
    )
    return handled - done


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_that_a_handler_governs_is_governed_by_a_task_as_well(role: str) -> None:
    assert only_by_handlers(ROOT / "roles" / role) == set(), "add a task that has it started and enabled"


def test_a_unit_of_a_handler_alone_is_found(tmp_path: Path) -> None:
    for part in ("tasks", "handlers"):
        (tmp_path / part).mkdir()
    (tmp_path / "handlers" / "main.yml").write_text(
        "- {name: A, ansible.builtin.service: {name: a, state: restarted}}\n"
        "- {name: B, ansible.builtin.systemd_service: {name: 'b@{{ item.x }}.service', state: reloaded}}\n"
        "- {name: C, systemd: {name: '{{ item }}', state: reloaded}, loop: [c.timer, d.timer]}\n"
        "- {name: E, systemd: {daemon_reload: true}}\n"
    )
    assert only_by_handlers(tmp_path) == {"a.service", "b@*.service", "c.timer", "d.timer"}
    (tmp_path / "tasks" / "main.yml").write_text(
        "- block:\n"
        "    - {name: A, ansible.builtin.systemd: {name: a.service, state: started}}\n"
        "    - {name: B, ansible.builtin.systemd: {name: 'b@{{ item }}.service'}, loop: '{{ them }}'}\n"
        "- {name: C, systemd: {name: c.timer, state: started}}\n"
    )
    assert only_by_handlers(tmp_path) == {"d.timer"}


def ended_by_its_reload(unit: str) -> bool:
    """Whether a signal that comes too early ends a service for good: it runs, and does not catch it yet."""
    signalled = re.search(r"^ExecReload=/bin/kill ", unit, re.MULTILINE)
    return bool(signalled and not re.search(r"^(Type=notify|Restart=always)$", unit, re.MULTILINE))


def test_a_service_that_is_signalled_to_read_anew_says_first_that_it_is_ready() -> None:
    files = sorted((ROOT / "roles").glob("**/*.service.j2"))
    assert [file.name for file in files if ended_by_its_reload(file.read_text())] == []
    signalled = "[Service]\nExecReload=/bin/kill -HUP $MAINPID\n"
    assert ended_by_its_reload(signalled)
    assert not ended_by_its_reload(f"{signalled}Restart=always\n")


KNOWN_OTHERWISE = {
    "chrony.service": "`adopt` says what of the clock's stays (base/doctor.py)",
    "ssh.service": "its own file stays; ours lies beside it",
    "systemd-resolved.service": "it stays, and asks one more server (discovery/doctor.py)",
    "frr.service": "wan_gateway refuses a machine whose FRR is somebody's (causeway_wan_ground.py)",
    "keepalived.service": "as FRR",
    "wg-quick@*.service": "as FRR; other tunnels stay",
}
UNTOLD = {
    "acceptance": {"*"},
    "container_runtime": {"containerd.service"},  # of pools with that engine (tests/unit/test_take_over.py)
    "cuda_base": {"*.service"},
    "ipmi_exporter": {"*.service"},
    "nfs_server": {"*", "*.service"},
    "registry": {"*"},
}
"""By variables; what these are for is in the roles' `services`, or has a name of ours."""


@pytest.mark.parametrize("role", role_order())
def test_a_service_of_others_packages_is_not_taken_over_unasked(role: str) -> None:
    found = {
        unit
        for name in roles_within(role)
        for task in tasks_in(ROOT / "roles" / name / "tasks")
        for unit in units(task)
        if unit.endswith((".service", "*")) and not unit.startswith(("causeway-", "consul-"))
    }
    contract = contract_of()
    patterns = {each for pool in contract.pools for each in roles()[role].services(contract, pool)}
    known = {*KNOWN_OTHERWISE, *UNTOLD.get(role, ())}
    assert {unit for unit in found - known if not any(fnmatch(unit, each) for each in patterns)} == set()
