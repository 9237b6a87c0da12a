"""A large program to six machines in two regions: once to each region, and from there on, whatever fails."""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.process import run
from tests.integration.checkout import ROOT, Checkout
from tests.integration.machines import Machines, standing

PROVES = ("artefact",)

SIZE = 137_000_000
"""Bytes of Consul's program."""
REGIONS = ("east", "west")
DEST = "/usr/local/bin/large"
PLAY = """
- name: Bring a program
  hosts: all
  gather_facts: false
  tasks:
    - name: Install it
      ansible.builtin.include_role: {name: artefact, tasks_from: install.yml}
      vars: {artefact_source: "{{ source }}", artefact_destination: "{{ dest }}"}

    - name: Say how it came
      ansible.builtin.copy:
        content: "{{ [__artefact_seeded | default({}), __artefact_taken | default({})] | to_json }}"
        dest: "{{ told }}/{{ inventory_hostname }}"
        mode: "0600"
      delegate_to: localhost
"""
COPY = """
- name: Bring a program from the controller to each
  hosts: all
  gather_facts: false
  tasks:
    - name: Copy it
      ansible.builtin.copy: {src: "{{ source }}", dest: "{{ dest }}", mode: "0755"}
"""


KILL = """
until ss -tnH state established "sport = :$(cat /run/$1/port 2>/dev/null || echo 1)" | grep -q .; do :; done
systemctl kill --signal=KILL "$1.service"
"""
"""Kills who hands it on once somebody takes it."""
SLOW = ("tbf", "rate", "200mbit", "burst", "256k", "latency", "50ms")
"""Has it take seconds to hand the program on: otherwise it takes a tenth, in which a kill may not come."""


class Site:
    """Six machines, a program on the controller, and plays on an inventory of them."""

    def __init__(self, folder: Path, machines: Machines) -> None:
        self.folder, self.machines = folder, machines
        self.source, self.told = folder / "program", folder / "told"
        self.told.mkdir()
        self.new_program()
        self.hosts = sorted(machines.states)
        known = folder / "known_hosts"
        keys = (f"{state.address} {state.host_key}\n" for state in machines.states.values())
        known.write_text("".join(keys))
        self.inventory = folder / "inventory.json"
        self.inventory.write_text(json.dumps({"all": {
            "hosts": {name: self._host(name) for name in self.hosts},
            "vars": {
                "ansible_user": "root", "ansible_ssh_private_key_file": str(machines.key),
                "ansible_ssh_common_args": f"-o UserKnownHostsFile={known} -o IdentitiesOnly=yes",
                "ansible_python_interpreter": "/usr/bin/python3", "mitogen_ssh_compression": False,
                "source": str(self.source), "told": str(self.told),
            },
        }}))  # fmt: skip

    def _host(self, name: str) -> dict[str, str]:
        return {
            "ansible_host": str(self.machines.states[name].address),
            "causeway_region": name.partition("-")[0],
        }

    def new_program(self) -> None:
        self.source.write_bytes(os.urandom(1 << 20) * (SIZE >> 20))
        self.sha256 = hashlib.sha256(self.source.read_bytes()).hexdigest()

    def play(self, text: str, dest: str = DEST) -> float:
        """Seconds that it took."""
        play = self.folder / "play.yml"
        play.write_text(text)
        words = ["ansible-playbook", "-i", str(self.inventory), "-e", f"dest={dest}", str(play)]
        started = time.monotonic()
        run(words, timeout_s=600, env={"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")})
        return time.monotonic() - started

    def bring(self) -> dict[str, list[dict[str, object]]]:
        """What each machine was given: from the controller as one that hands it on, or taken."""
        for file in self.told.iterdir():
            file.unlink()
        took_s = self.play(PLAY)
        found = {host: json.loads((self.told / host).read_text()) for host in self.hosts}
        print(f"{took_s:.1f} s, {sum(map(sent, found.values())) / 1e6:.0f} MB from the controller")
        return found

    def have_it(self, dest: str = DEST) -> bool:
        found = {host: self.machines.on(host, "sha256sum", dest).split()[0] for host in self.hosts}
        return found == dict.fromkeys(self.hosts, self.sha256)

    def left(self) -> str:
        """What of the way is still on any machine."""
        ask = (
            "systemctl list-units --all --no-legend 'causeway-artefact-*'; find /usr/local/bin -name '*.part'"
        )
        return "".join(self.machines.on(host, "sh", "-c", ask) for host in self.hosts)


def sent(found: list[dict[str, object]]) -> int:
    """Bytes from the controller."""
    return sum(int(str(part.get("sent", 0))) for part in found)


@pytest.fixture(scope="module")
def site(checkout: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with standing(checkout, dict.fromkeys(REGIONS, 3)) as machines:
        yield Site(tmp_path_factory.mktemp("site"), machines)


def test_it_travels_once_to_each_region(site: Site) -> None:
    size = site.source.stat().st_size
    copied_s = site.play(COPY, "/usr/local/bin/copied")
    print(f"copied to each: {copied_s:.1f} s, {len(site.hosts) * size / 1e6:.0f} MB from the controller")
    found = site.bring()
    from_controller = {host: sent(parts) for host, parts in found.items() if sent(parts)}
    assert from_controller == {f"{region}-0": size for region in REGIONS}
    assert site.have_it()
    assert site.left() == ""


def test_a_machine_more_gets_it_from_those_that_have_it(site: Site) -> None:
    site.machines.on("west-2", "rm", DEST)
    assert sum(map(sent, site.bring().values())) == 0
    assert site.have_it()


def test_when_who_hands_it_on_is_killed_midway_all_have_it_all_the_same(site: Site) -> None:
    site.new_program()
    size = site.source.stat().st_size
    for region in REGIONS:
        unit = f"causeway-artefact-{site.sha256[:16]}"
        words = (
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit=killer-{unit}",
            "sh",
            "-c",
            KILL,
            "kill",
            unit,
        )
        site.machines.on(f"{region}-0", *words)
        site.machines.on(f"{region}-0", "tc", "qdisc", "add", "dev", "eth0", "root", *SLOW)
    try:
        found = site.bring()
    finally:
        for region in REGIONS:
            site.machines.on(f"{region}-0", "tc", "qdisc", "del", "dev", "eth0", "root")
    print({host: sent(parts) for host, parts in found.items()})
    assert sum(map(sent, found.values())) > len(REGIONS) * size, "it was killed before all had it"
    assert site.have_it()
    assert site.left() == ""


def test_where_no_machine_reaches_another_the_controller_brings_it(site: Site) -> None:
    site.new_program()
    guard = "nft add table inet guard; nft 'add chain inet guard in {type filter hook input priority 0;}'; "
    guard += "nft add rule inet guard in ip saddr != $1 tcp dport != 22 ct state new drop"
    for host in site.hosts:
        gateway = site.machines.on(host, "sh", "-c", "ip -o route show default | cut -d' ' -f3").strip()
        site.machines.on(host, "sh", "-ec", guard, "guard", gateway)
    found = site.bring()
    assert all(sent(parts) == site.source.stat().st_size for parts in found.values())
    assert "timed out" in str(found["east-1"][1]["why"])
    assert site.have_it()
