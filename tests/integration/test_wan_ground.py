"""The gateway role's own tasks on a machine that somebody has used before: this one, with an /etc that is
laid over its own for the length of a run, and a stand-in for systemctl."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from infra.ground.contract import SCHEMA_VERSION
from infra.inventory.roles import role_order

PROVES = ("wan", "wan_gateway", "tcp_tuning")

ROOT = Path(__file__).resolve().parents[2]
TASKS = ROOT / "roles" / "wan_gateway" / "tasks"
ELSEWHERE = {"system.yml", "routing.yml", "traffic.yml"}
"""Tasks that install packages, or need what those bring."""
ADDRESS = "10.9.0.5"
CLASSES = {"management_pct": 10, "scheduler_pct": 20, "replication_pct": 60, "scavenger_pct": 5}
LINK = {
    **{"name": "sea", "gateway": ADDRESS, "address": "192.0.2.1/30", "peer": "192.0.2.2", "rtt_ms": 20.0},
    **{
        "bandwidth_mbps": 100.0,
        "loss_pct": 0.0,
        "mtu_bytes": 1500,
        "handover_mtu_bytes": 1500,
        "classes": CLASSES,
    },
}
OLD = {**LINK, "name": "old", "tunnel": {"device": "wg-old", "address": "100.101.0.1/30", "port": 49152}}
OURS = "# Ansible managed (Causeway: wan_gateway)\n[Interface]\n"
FOREIGN = {
    "wireguard/wg-office.conf": "[Interface]\nPrivateKey = x\n",
    "keepalived/keepalived.conf": "# web\n",
}

SYSTEMCTL = """#!/bin/sh
echo "$*" >>"$SYSTEMCTL_LOG"
case $1 in show) printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n' ;; esac
"""
MACHINE = """
mount -t tmpfs machine "$1" && mkdir "$1/new" "$1/work"
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$1/new,workdir=$1/work" /etc
cp -a "$2/." /etc/
shift 2
status=0; "$@" || status=$?
cp -a "/etc/wireguard" "/etc/keepalived" "/etc/frr" /etc/touched "$AFTER" 2>"$AFTER/said"
exit $status
"""
REST = """
- hosts: all
  gather_facts: false
  tasks:
    - name: Do what roles do
      ansible.builtin.copy: {content: "", dest: /etc/touched, mode: "0644"}
"""


@dataclass(frozen=True)
class Result:
    """How a playbook ended, what it said, and the machine's files and systemd calls afterwards."""

    status: int
    said: str
    files: dict[str, str]
    calls: list[str]


def machine(tmp_path: Path, files: dict[str, str], playbook: str, **variables: Any) -> Result:
    """Run a playbook on a machine with these files below /etc."""
    before, after, scratch, tools = (tmp_path / name for name in ("before", "after", "scratch", "tools"))
    for folder in (before / "wireguard", before / "keepalived", before / "frr", after, scratch, tools):
        folder.mkdir(parents=True)
    for name, text in files.items():
        (before / name).write_text(text)
    (tools / "systemctl").write_text(SYSTEMCTL)
    (tools / "systemctl").chmod(0o755)
    (tmp_path / "play.yml").write_text(playbook)
    known = {"ansible_connection": "local", "ansible_host": ADDRESS, "wan_gateway_links": [LINK], **variables}
    known |= {"causeway_contract_version": SCHEMA_VERSION, "causeway_region": "here"}
    groups = ["region_here", "pool_here_edge", "role_gateway", *(f"feature_{role}" for role in role_order())]
    inventory = {name: {"hosts": {"edge": None}} for name in groups}
    inventory["all"] = {"hosts": {"edge": known}}  # type: ignore[dict-item]
    (tmp_path / "hosts.yml").write_text(json.dumps(inventory))
    environment = {
        **{"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_ROLES_PATH": str(ROOT / "roles")},
        **{"ANSIBLE_INVENTORY_ENABLED": "ansible.builtin.yaml", "LC_ALL": "C.UTF-8", "AFTER": str(after)},
        **{"SYSTEMCTL_LOG": str(tmp_path / "calls"), "PATH": f"{tools}:{os.environ['PATH']}"},
    }
    words = ["unshare", "--mount", "--net", "sh", "-uc", MACHINE, "machine", str(scratch), str(before)]
    words += ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), str(tmp_path / "play.yml")]
    done = subprocess.run(
        words, env={**os.environ, **environment}, text=True, capture_output=True, check=False, cwd=ROOT
    )
    calls = (tmp_path / "calls").read_text().splitlines() if (tmp_path / "calls").exists() else []
    left = {
        str(path.relative_to(after)): path.read_text()
        for path in after.rglob("*")
        if path.is_file() and path.name != "said"
    }
    return Result(done.returncode, done.stdout + done.stderr, left, calls)


def role() -> str:
    """A play of the role's parts, in its own order, without those that need packages."""
    parts = [task["ansible.builtin.import_tasks"] for task in YAML(typ="safe").load(TASKS / "main.yml")]
    tasks = [
        {"ansible.builtin.include_role": {"name": "wan_gateway", "tasks_from": part}}
        for part in parts
        if part not in ELSEWHERE
    ]
    return json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}])


def had(*links: dict[str, Any]) -> dict[str, str]:
    """What the role left when it last ran there with these links."""
    tunnels = {f"wireguard/{link['tunnel']['device']}.conf": OURS for link in links if "tunnel" in link}
    return {"causeway-wan-gateway.json": json.dumps({"links": links}), **tunnels}


def test_it_ends_its_own_tunnels_and_touches_no_other(tmp_path: Path) -> None:
    done = machine(tmp_path, {**FOREIGN, **had(LINK, OLD)}, role())
    assert done.status == 0, done.said
    assert done.files == FOREIGN
    asked = [re.findall(r"(stop|disable) (\S+)", call) for call in done.calls]
    assert {found for calls in asked for found in calls} == {
        ("stop", "wg-quick@wg-old.service"),
        ("disable", "wg-quick@wg-old.service"),
    }


def test_it_leaves_the_shared_address_that_is_its_own(tmp_path: Path) -> None:
    own = {"keepalived/keepalived.conf": OURS}
    done = machine(tmp_path, {**own, **had(LINK)}, role())
    assert done.status == 0, done.said
    assert done.files == {}
    assert "stop keepalived.service" in done.calls


@pytest.mark.parametrize("shares", [False, True])
def test_what_is_in_the_way_stops_the_machine_before_any_role(tmp_path: Path, shares: bool) -> None:
    theirs = {**FOREIGN, "frr/frr.conf": "router bgp 65001\n"}
    shared = {"wan_gateway_vip": "10.9.0.77", "wan_gateway_members": [ADDRESS, "10.9.0.6"]}
    playbook = f"- ansible.builtin.import_playbook: {ROOT}/playbooks/validate.yml\n{REST}"
    done = machine(tmp_path, theirs, playbook, **(shared if shares else {}))
    assert done.status == 2, done.said
    assert done.files == theirs, "and no file of another role"
    assert "edge was not changed: " in done.said
    assert "/etc/frr/frr.conf is somebody else's (router bgp 65001" in done.said
    assert ("/etc/keepalived/keepalived.conf is somebody else's" in done.said) is shares
    assert "wg-office" not in done.said, "which is not in the way"


def test_a_free_machine_is_let_through(tmp_path: Path) -> None:
    playbook = f"- ansible.builtin.import_playbook: {ROOT}/playbooks/validate.yml\n{REST}"
    done = machine(tmp_path, {"frr/frr.conf": "log syslog informational\n"}, playbook)
    assert done.status == 0, done.said
    assert "touched" in done.files


ROUTES = """
import importlib.util, sys
from pathlib import Path
spec = importlib.util.spec_from_file_location("tcp", sys.argv[1])
tcp = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tcp)
tcp.ROUTES_FILE = Path(sys.argv[2])
if sys.argv[3] == "restore":
    print(*tcp.give_back())
else:
    for wanted in tcp.json.loads(tcp.ROUTES_FILE.read_text()):
        tcp.apply_route(wanted, dry_run=False)
"""


def test_routes_of_ours_go_and_those_of_others_get_back_their_metrics(tmp_path: Path) -> None:
    program = ROOT / "roles/tcp_tuning/module_utils/causeway_tcp.py"
    wanted = [{"cidr": cidr, "congestion_control": "cubic"} for cidr in ("10.2.0.0/16", "10.3.0.0/16")]
    (tmp_path / "routes.json").write_text(json.dumps([wanted[0] | {"mtu_bytes": 1400}, wanted[1]]))
    theirs = "10.3.0.0/16 via 192.0.2.9 dev d0 proto static metric 7"
    script = f"""
        mount -t sysfs sysfs /sys && ip link add d0 type veth peer d1 && ip link set d1 up
        ip address add 192.0.2.1/24 dev d0 && ip link set d0 up
        ip route add default via 192.0.2.254 && ip route add {theirs}
        ip route | sort; echo; python3 -c "$1" {program} {tmp_path}/routes.json apply
        ip route | sort; echo; python3 -c "$1" {program} {tmp_path}/routes.json restore; ip route | sort
    """
    argv = ["unshare", "--net", "--mount", "sh", "-ec", script, "sh", ROUTES]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, tuned, after = (part.strip() for part in done.stdout.split("\n\n"))
    assert "10.2.0.0/16 via 192.0.2.254 dev d0 proto 96 mtu 1400 congctl cubic" in tuned
    assert f"{theirs} congctl cubic" in tuned
    assert after == before
