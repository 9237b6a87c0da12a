"""A node started from the image boots cleanly, can be reached by key alone, and cannot change its host."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment, nodes

from infra import ROOT
from infra.inventory.steps import Step, steps, texts_in, values
from infra.providers.local import names
from infra.providers.local.containers import discard
from infra.providers.local.image import ensure_image
from tests.loaded import load
from tests.patience import wait_for

PROVES = ("local",)

LABEL = f"causeway.test=node-image-{names.short_hash(str(names.CHECKOUT))}"
"""Not that of another checkout, whose tests may run meanwhile."""


def podman(*words: str) -> str:
    return subprocess.run(["podman", *words], capture_output=True, text=True, check=True).stdout.strip()


def remove_all() -> None:
    discard(*podman("ps", "--all", "--quiet", "--filter", f"label={LABEL}").split())


def start_node() -> str:
    node = podman(
        *("run", "--detach", "--systemd=always", "--privileged", "--label", LABEL),
        ensure_image(print),
    )
    state = "systemctl is-system-running || true"
    wait_for(lambda: within(node, state) in {"running", "degraded"}, "the node to have booted")
    return node


def within(node: str, script: str) -> str:
    return podman("exec", node, "sh", "-c", script)


def as_service(node: str, script: str) -> str:
    """Run a script as a child of the node's systemd, as what comes in by SSH is: `exec` has more rights."""
    return within(node, f"systemd-run --quiet --wait --pipe sh -c '{script}' 2>&1 || true")


@pytest.fixture(scope="module")
def node() -> Iterator[str]:
    remove_all()  # what a run that was killed left behind
    try:
        yield start_node()
    finally:
        remove_all()


def test_no_unit_fails(node: str) -> None:
    assert within(node, "systemctl list-units --failed --no-legend") == ""
    assert within(node, "systemctl is-system-running") == "running"


def test_root_logs_in_by_key_alone(node: str) -> None:
    settings = within(node, "sshd -T").splitlines()
    assert "permitrootlogin without-password" in settings
    assert "passwordauthentication no" in settings
    assert within(node, "systemctl is-active ssh") == "active"


def test_roots_user_manager_runs_also_while_nobody_is_logged_in(node: str) -> None:
    assert within(node, "systemctl is-active user@0.service") == "active"


def test_two_nodes_have_different_identities(node: str) -> None:
    other = start_node()
    for path in ("/etc/ssh/ssh_host_ed25519_key.pub", "/etc/machine-id"):
        assert within(node, f"cat {path}")
        assert within(node, f"cat {path}") != within(other, f"cat {path}")


def test_node_has_its_own_network_settings_and_cannot_set_the_host_s(node: str) -> None:
    """Writes a value the host has already, so that nothing is harmed where the guard is missing."""
    host = Path("/proc/sys/vm/swappiness").read_text().strip()
    assert "net.ipv4.tcp_mtu_probing = 1" in as_service(node, "sysctl -w net.ipv4.tcp_mtu_probing=1")
    assert "permission denied" in as_service(node, f"sysctl -w vm.swappiness={host}")


def test_node_cannot_set_the_host_s_clock_or_load_modules(node: str) -> None:
    effective = int(as_service(node, "grep CapEff /proc/self/status").split()[1], 16)
    kept = {
        name
        for name, bit in {"sys_module": 16, "sys_rawio": 17, "sys_time": 25}.items()
        if effective >> bit & 1
    }
    assert kept == set()
    assert effective >> 12 & 1, "a node sets up its own network (cap_net_admin)"


def test_small_packages_install_without_fetching_the_lists(node: str) -> None:
    assert "Inst chrony" in within(node, "apt-get install --simulate chrony")


PACKAGE = re.compile(r"(?<![\w.+-])[a-z0-9][a-z0-9+.-]+")


def asked_for(step: Step) -> set[str]:
    """The words that a task which installs packages may install, through all variables that it reaches."""
    near = values(step.role) | dict(step.values) | (step.task.get("vars") or {})
    todo, seen = list(texts_in(step.task["causeway_apt"].get("name"))), set[str]()
    found: set[str] = set()
    while todo:
        names, texts = taken(Environment(autoescape=True).parse(todo.pop()))
        found |= {word for text in texts for word in PACKAGE.findall(text)}
        for name in (names & set(near)) - seen:
            seen.add(name)
            todo += texts_in(near[name])
    return found


def taken(node: nodes.Node) -> tuple[set[str], set[str]]:
    """The variables and texts that an expression gives on, without those by which it decides."""
    names, texts = set[str](), set[str]()
    todo: list[nodes.Node] = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, nodes.Name):
            names.add(one.name)
        elif isinstance(one, nodes.TemplateData):
            texts.add(one.data)
        elif isinstance(one, nodes.Const) and isinstance(one.value, str):
            texts.add(one.value)
        asked = [one.test] if isinstance(one, nodes.CondExpr | nodes.If) else []
        if not isinstance(one, nodes.Compare):
            todo += [inner for inner in one.iter_child_nodes() if inner not in asked]
    return names, texts


def test_apt_s_lists_name_what_roles_install_and_all_of_debian_after_an_update(node: str) -> None:
    """Last of those that share the node: it has all of Debian from here on."""
    roles = [path.name for path in sorted((ROOT / "roles").iterdir())]
    tasks = [step for role in roles for step in steps(role) if "causeway_apt" in step.task]
    asked = {word for step in tasks for word in asked_for(step)}
    before = set(within(node, "apt-cache pkgnames").split())
    within(node, "apt-get --quiet=2 update")
    after = set(within(node, "apt-cache pkgnames").split())
    assert {"ceph-osd", "chrony", "frr"} <= asked & before
    assert asked & after <= before
    assert len(after) > 20 * len(before)


@pytest.mark.usefixtures("node")  # removes it
def test_apt_need_not_work_its_lists_out_anew() -> None:
    said = within(start_node(), "apt-cache -o Debug::pkgCacheGen=yes policy chrony 2>&1")
    assert "is valid" in said
    assert "NOT valid" not in said


def test_apt_keeps_which_packages_came_for_others_where_the_look_before_roles_reads_it(
    node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    causeway_prior = load(ROOT / "playbooks" / "module_utils" / "causeway_prior.py")
    kept = tmp_path / "extended_states"
    kept.write_text(within(node, f"cat {causeway_prior.EXTENDED_STATES}"))
    monkeypatch.setattr(causeway_prior, "EXTENDED_STATES", kept)
    assert sorted(causeway_prior.came_for_others()) == within(node, "apt-mark showauto").split()


def test_restarted_node_keeps_its_host_key(node: str) -> None:
    before = within(node, "cat /etc/ssh/ssh_host_ed25519_key.pub")
    podman("restart", node)
    assert within(node, "cat /etc/ssh/ssh_host_ed25519_key.pub") == before
