"""No text that is declared, or that a node says, is a template: a real Ansible hands each on as it is."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.capabilities.base.section import BaseSection
from infra.converge import runner
from infra.files import write_file
from infra.ground.contract import Contract
from infra.ground.secrets import GIVEN
from infra.inventory.groups import inventory_data
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.stack import secret_file, stack_dir
from infra.verify.expectations import parse
from tests.unit.texts import KEY, MACHINES, TEMPLATES, accepted, texts, variants, with_text

ROOT = Path(__file__).resolve().parents[2]
STACK = "templates-test"
STRATEGIES = ("causeway_linear", "linear")
READ_ALL = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.set_fact:
        copied: "{{ base_authorized_keys }}"
        looked_up: "{{ dict(names | zip(query('ansible.builtin.vars', *names))) }}"
      when: inventory_hostname == 'tokyo-edge-1'
    - ansible.builtin.assert:
        that:
          - copied == base_authorized_keys
          - base_authorized_keys[0] in hostvars[inventory_hostname].base_authorized_keys
      when: inventory_hostname == 'tokyo-edge-1'
    - ansible.builtin.template:
        src: all.j2
        dest: "{{ playbook_dir }}/{{ inventory_hostname }}.json"
        mode: "0644"
      delegate_to: localhost
      vars: {ansible_connection: local, ansible_become: false}
      when: inventory_hostname == 'tokyo-edge-1'
"""
ALL = """
{{ {'variables': looked_up,
    'others': hostvars['osaka-control-0'].base_authorized_keys, 'copied': copied,
    'joined': base_authorized_keys | join('|'), 'key': ansible_ssh_private_key_file} | to_json }}
"""
FROM_NODES = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.setup:
        gather_subset: ["!all", "!min", local]
        fact_path: "{{ playbook_dir }}"
    - ansible.builtin.command: cat said.fact
      args: {chdir: "{{ playbook_dir }}"}
      register: said
    - ansible.builtin.slurp:
        src: "{{ playbook_dir }}/said.fact"
      register: read
    - ansible.builtin.set_fact:
        kept: "{{ said.stdout | from_json }}"
    - ansible.builtin.add_host:
        name: another
        kept: "{{ kept }}"
        line: "{{ said.stdout_lines[0] }}"
    - ansible.builtin.assert:
        that: said.stdout == hostvars.another.line
        fail_msg: "{{ said.stdout }}"
    - ansible.builtin.debug:
        msg: "{{ kept }}"
      when: said.stdout != kept[0]
    - ansible.builtin.template:
        src: all.j2
        dest: "{{ playbook_dir }}/said.json"
        mode: "0644"
"""
SHOW = """
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.template:
        src: all.j2
        dest: "{{ playbook_dir }}/said.json"
        mode: "0644"
"""
ALL_SAID = """
{{ {'fact': ansible_facts.ansible_local.said, 'kept': kept, 'another': hostvars.another.kept,
    'read': read.content | b64decode | from_json, 'line': said.stdout | from_json} | to_json }}
"""


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("PULUMI_")}
    return own | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}


def run(folder: Path, *command: str, **more: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment() | more, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def play(folder: Path, playbook: str, template: str, *arguments: str, strategy: str = STRATEGIES[0]) -> None:
    (folder / "playbook.yml").write_text(playbook)
    (folder / "all.j2").write_text(template)
    run(folder, "ansible-playbook", "playbook.yml", *arguments, ANSIBLE_STRATEGY=strategy)


def declared_with(odd: str) -> Any:
    """A declaration with something odd wherever `causeway check` lets it pass."""
    tree = MACHINES
    for path, text in texts(MACHINES):
        found = (with_text(tree, path, variant) for variant in variants(text, odd))
        tree = next((changed for changed in found if accepted(changed) is not None), tree)
    return tree


def contract_of(tree: Any) -> Contract:
    spec = accepted(tree)
    assert spec is not None
    return build_contract(spec, make_plan(spec), STACK)


def inventory_of(contract: Contract, folder: Path) -> Path:
    (folder / "contract.json").write_text(contract.model_dump_json())
    source = folder / "causeway.yml"
    source.write_text(f"plugin: causeway\ncontract: {folder / 'contract.json'}\n")
    return source


def variables(inventory: Mapping[str, Any], host: str) -> dict[str, Any]:
    """A host's variables as the plugin's dictionary has them."""
    above = [name for name, group in inventory.items() if host in group.get("hosts", ())]
    found: dict[str, Any] = dict(inventory["_meta"]["hostvars"][host])
    while above:
        group = above.pop(0)
        found = dict(inventory[group]["vars"]) | found
        above += [name for name, other in inventory.items() if group in other.get("children", ())]
    return found


@pytest.fixture
def _password() -> Iterator[None]:
    """The secret that the declaration says sudo's password is in."""
    file = secret_file(STACK, f"{GIVEN}sudo-ada")
    write_file(file, "a password")
    yield
    shutil.rmtree(ROOT / stack_dir(STACK))


def made(folder: Path) -> Iterator[Path]:
    """What a template would have made that was taken for one."""
    return folder.rglob("made")


@pytest.mark.usefixtures("_password")
@pytest.mark.parametrize("odd", TEMPLATES)
def test_what_is_declared_comes_out_as_it_is(odd: str, tmp_path: Path) -> None:
    contract = contract_of(declared_with(odd))
    base = contract.section(BaseSection)
    assert base
    assert odd in base.authorized_keys[0]
    assert odd in contract.regions["tokyo"].ssh_private_key_file or "'" in odd
    source, inventory = inventory_of(contract, tmp_path), inventory_data(contract, ROOT)
    expected = variables(inventory, "tokyo-edge-1")
    names = json.dumps({"names": sorted(expected)})
    play(tmp_path, READ_ALL, ALL, "-i", str(source), "-e", names)
    found = json.loads((tmp_path / "tokyo-edge-1.json").read_text())
    assert found["variables"] == expected
    keys = list(base.authorized_keys)
    assert found["copied"] == found["others"] == keys
    assert found["joined"] == "|".join(keys)
    assert found["key"] == expected["ansible_ssh_private_key_file"]
    told = parse(run(tmp_path, "python", "-m", "infra.verify.expectations", "--inventory", str(source)))
    assert {str(host.variables["base_authorized_keys"]) for host in told.hosts} == {str(keys)}
    assert not list(made(tmp_path))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_node_says_comes_out_as_it_is(strategy: str, tmp_path: Path) -> None:
    said = list(TEMPLATES)
    (tmp_path / "said.fact").write_text(json.dumps(said))
    play(tmp_path, FROM_NODES, ALL_SAID, "-i", "localhost,", "-c", "local", strategy=strategy)
    found = json.loads((tmp_path / "said.json").read_text())
    assert found == dict.fromkeys(found, said)
    assert not list(made(tmp_path))


def test_what_the_runner_is_given_comes_out_as_it_is(tmp_path: Path) -> None:
    given = {"key": f"{KEY} {TEMPLATES[0]}", "nested": {"list": [*TEMPLATES, 1, None, True]}}
    arguments = runner._arguments(tmp_path, None, given)
    template = "{{ {'key': key, 'nested': nested} | to_json }}"
    play(tmp_path, SHOW, template, "-i", "localhost,", "-c", "local", *arguments)
    assert json.loads((tmp_path / "said.json").read_text()) == given
    assert not list(made(tmp_path))
