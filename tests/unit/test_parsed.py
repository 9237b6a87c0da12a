"""What Ansible reads of playbooks and roles is the same, whether it parses them or finds them parsed."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.module_utils._internal._datatag import AnsibleTagHelper
from ansible.parsing.dataloader import DataLoader
from ansible.parsing.vault import VaultLib, VaultSecret

from infra import ROOT, cached
from infra.converge import parsed

PLAIN = getattr(DataLoader.load_from_file, "__wrapped__", DataLoader.load_from_file)
FILES = sorted([*ROOT.glob("playbooks/*.yml"), *ROOT.glob("roles/*/[dhmtv]*/*.yml")])
SECRET = [("default", VaultSecret(b"only a test's"))]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is kept is this test's own."""
    monkeypatch.setenv("CAUSEWAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cached, "OURS", (*cached.OURS, tmp_path))
    return parsed.PARSED.folder


def loaded(path: Path, loader: DataLoader | None = None) -> Any:
    """A file as a run loads it that begins now, or one that has begun."""
    return parsed._found_parsed(PLAIN)(loader or DataLoader(), str(path), trusted_as_template=True)


def with_tags(value: Any) -> Any:
    """A value with all that Ansible knows of each part: where it stands, and whether it is a template."""
    if isinstance(value, dict):
        inner: Any = [(with_tags(key), with_tags(one)) for key, one in value.items()]
    elif isinstance(value, list | tuple):
        inner = [with_tags(one) for one in value]
    else:
        inner = value
    return type(value), inner, sorted(map(repr, AnsibleTagHelper.tags(value)))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_what_ansible_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = with_tags(PLAIN(DataLoader(), str(path), trusted_as_template=True))
    assert with_tags(loaded(path)) == expected
    monkeypatch.setattr(DataLoader, "load", None)
    assert with_tags(loaded(path)) == expected


def test_it_is_the_callers_own(tmp_path: Path) -> None:
    file = tmp_path / "tasks.yml"
    file.write_text("- {name: x, vars: {y: [1]}}\n")
    loader = DataLoader()
    first = loaded(file, loader)
    first[0]["vars"]["y"].append(2)
    first[0].pop("name")
    assert loaded(file, loader) == [{"name": "x", "vars": {"y": [1]}}]


def test_a_run_stands_on_the_files_that_it_began_with_and_the_next_on_todays(tmp_path: Path) -> None:
    file = tmp_path / "tasks.yml"
    file.write_text("[1]")
    began = DataLoader()
    assert loaded(file, began) == [1]
    file.write_text("[2]")
    assert loaded(file, began) == [1]
    assert loaded(file) == [2]


def test_what_is_no_yaml_is_said_each_time(tmp_path: Path) -> None:
    file = tmp_path / "tasks.yml"
    file.write_text("a: [")
    for _ in range(2):
        with pytest.raises(AnsibleError, match="YAML parsing failed"):
            loaded(file)


def test_what_a_vault_holds_is_kept_nowhere(tmp_path: Path, kept: Path) -> None:
    file, other = tmp_path / "secret.yml", tmp_path / "open.yml"
    file.write_bytes(VaultLib(SECRET).encrypt("password: hidden", SECRET[0][1]))
    other.write_text("password: open")
    for _ in range(2):
        loader = DataLoader()
        loader.set_vault_secrets(SECRET)
        assert loaded(file, loader) == {"password": "hidden"}
        assert loaded(other, loader) == {"password": "open"}
    (one,) = kept.iterdir()
    assert b"hidden" not in one.read_bytes()


@pytest.mark.parametrize("name", ["given.yml", "roles/group_vars/all.yml"])
def test_what_is_no_playbook_or_role_is_kept_nowhere(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Such as a file that `-e @FILE` gives for one run."""
    monkeypatch.setattr(cached, "OURS", (tmp_path / "roles",))
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("password: hidden")
    assert loaded(file) == loaded(file) == {"password": "hidden"}
    assert not kept.exists()


@pytest.mark.parametrize("length", [0, 10, 40, -1])
def test_what_power_left_of_it_is_parsed_again(tmp_path: Path, kept: Path, length: int) -> None:
    file = tmp_path / "tasks.yml"
    file.write_text("- one\n- two\n")
    loaded(file)
    (one,) = kept.iterdir()
    whole = one.read_bytes()
    one.write_bytes(whole[:length])
    assert loaded(file) == ["one", "two"]
    assert one.read_bytes() == whole


PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.add_host: {name: late, groups: "{{ late | default([]) }}", ansible_connection: local}
- hosts: "{{ causeway_hosts | default('feature_' ~ causeway_role) }}"
  gather_facts: false
  vars: {causeway_role: taken}
  roles: [taken]
- hosts: "{{ causeway_hosts | default('feature_' ~ causeway_role) }}"
  gather_facts: false
  vars: {causeway_role: nobodys}
  roles: [nobodys]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two roles, of which one cannot be read; its group is there, and empty."""
    made = tmp_path_factory.mktemp("play")
    for name, text in (("taken", "[{ansible.builtin.debug: {msg: it ran}}]"), ("nobodys", "[{nonsense: [}]")):
        tasks = made / "roles" / name / "tasks" / "main.yml"
        tasks.parent.mkdir(parents=True)
        tasks.write_text(text)
    (made / "play.yml").write_text(PLAY)
    (made / "hosts").write_text("[feature_taken]\na ansible_connection=local\n[feature_nobodys]\n")
    return made


def play(folder: Path, *options: str, strategy: str = "causeway_linear") -> tuple[int, str]:
    """How Ansible ends with the play, and what it says."""
    ended = subprocess.run(
        ["ansible-playbook", "-i", "hosts", "play.yml", *options],
        env=os.environ
        | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STRATEGY": strategy}
        | {"ANSIBLE_ROLES_PATH": str(folder / "roles"), "PYTHONPATH": str(ROOT)},
        cwd=folder,
        text=True,
        check=False,
        timeout=120,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return ended.returncode, ended.stdout


@pytest.mark.parametrize("strategy", ["linear", "causeway_linear"])
def test_a_role_that_no_host_takes_is_not_read(folder: Path, strategy: str) -> None:
    code, said = play(folder, strategy=strategy)
    assert code == 0, said
    assert "it ran" in said


@pytest.mark.parametrize("option", ["--syntax-check", "--list-tasks"])
def test_a_playbook_that_is_only_looked_at_is_read_whole(folder: Path, option: str) -> None:
    code, said = play(folder, option)
    assert code != 0
    assert "YAML parsing failed" in said


@pytest.mark.parametrize("strategy", ["linear", "causeway_linear"])
@pytest.mark.parametrize("late", ["causeway_hosts=late", "late=feature_nobodys"])
def test_a_host_that_takes_it_all_the_same_is_not_passed_over(folder: Path, strategy: str, late: str) -> None:
    """A host may be put into the play, or into the group, while the playbook runs."""
    code, said = play(folder, "-e", late, strategy=strategy)
    assert code != 0
    assert "no host took the role when the playbook was read" in said
