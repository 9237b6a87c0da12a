"""What a role includes counts as its own: its files, its variables, wherever and however it is named."""

from pathlib import Path

import pytest

from infra.checks.load import load_spec
from infra.drift import inputs
from infra.drift.inputs import role_inputs
from infra.errors import CausewayError
from infra.files import tree_hash
from infra.ground.contract import Contract
from infra.inventory.groups import inventory_data
from infra.inventory.roles import helper_roles, role_order, roles_within
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

ROOT = Path(__file__).resolve().parents[2]

WAYS = {
    "tasks/main.yml": [
        "- ansible.builtin.include_role: {name: helper, tasks_from: x.yml}",
        "- ansible.builtin.import_role:\n    name: helper\n  vars: {name: other}",
        "- include_role: {role: helper}",
        "- ansible.builtin.include_role: name=helper tasks_from=x",
        "- ansible.legacy.import_role:\n  args: {name: helper}",
        "- block:\n    - block:\n        - ansible.builtin.import_role: {name: helper}",
        "- block: []\n  rescue:\n    - ansible.builtin.import_role: {name: helper}",
    ],
    "tasks/deep/part.yaml": ["- ansible.builtin.include_role: {name: helper}"],
    "handlers/main.yml": ["- name: Handle\n  ansible.builtin.include_role: {name: helper}"],
    "meta/main.yml": [
        "dependencies: [helper]",
        "dependencies:\n  - role: helper\n    vars: {x: 1}",
        "dependencies:\n  - {name: helper}",
    ],
}
"""File of a role → texts by which it includes the role `helper`."""


def write(root: Path, role: str, file: str, text: str) -> None:
    path = root / "roles" / role / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{text}\n")


@pytest.mark.parametrize(("file", "text"), [(file, text) for file, texts in WAYS.items() for text in texts])
def test_a_role_that_is_included_is_found(tmp_path: Path, file: str, text: str) -> None:
    write(tmp_path, "helper", "tasks/main.yml", "- ansible.builtin.debug: {msg: include_role}")
    write(tmp_path, "user", file, text)
    assert roles_within("user", tmp_path) == ("user", "helper")
    assert roles_within("helper", tmp_path) == ("helper",)


def test_what_is_included_in_turn_is_found_once(tmp_path: Path) -> None:
    for role, included in {"a": "[b, c]", "b": "[d]", "c": "[d, a]", "d": "[]"}.items():
        write(tmp_path, role, "meta/main.yml", f"dependencies: {included}")
    assert roles_within("a", tmp_path) == ("a", "b", "c", "d")
    assert roles_within("c", tmp_path) == ("c", "d", "a", "b")


def test_what_is_no_role_of_ours_counts_for_nothing(tmp_path: Path) -> None:
    texts = ["- ansible.builtin.import_role: {name: some.collection.role}", "- ansible.builtin.debug: {}"]
    write(tmp_path, "user", "tasks/main.yml", "\n".join(texts))
    write(tmp_path, "user", "meta/argument_specs.yml", "dependencies: [helper]")
    write(tmp_path, "helper", "tasks/main.yml", "[]")
    write(tmp_path, "user", "molecule/default/converge.yml", "- ansible.builtin.include_role: {name: helper}")
    assert roles_within("user", tmp_path) == ("user",)


@pytest.mark.parametrize("name", ["'{{ kind }}_server'", "'{{ item }}'", "''", "[a]"])
def test_a_name_that_cannot_be_told_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, "user", "tasks/main.yml", f"- ansible.builtin.include_role: {{name: {name}}}")
    with pytest.raises(CausewayError, match=r"roles/user/tasks/main\.yml: which role it includes"):
        roles_within("user", tmp_path)


def test_helpers_are_what_the_roles_of_plays_include() -> None:
    assert "pki" in helper_roles()
    assert not set(helper_roles()) & set(role_order())
    assert set(roles_within("consul")) == {"consul", "artefact", "dns_stub", "pki"}


@pytest.fixture
def contract() -> Contract:
    spec = load_spec(ROOT / "Pulumi.local.yaml")
    return build_contract(spec, make_plan(spec), "test")


def test_a_change_to_a_helper_makes_its_users_stale_and_no_other(
    contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = role_inputs(contract, {})

    def after_the_change(*paths: str) -> str:
        return tree_hash(*paths) + ("changed" if "roles/pki" in paths else "")

    monkeypatch.setattr(inputs, "tree_hash", after_the_change)
    monkeypatch.setattr(inputs, "sources_now", lambda: inputs.sources_of)
    after = role_inputs(contract, {})
    for host, by_role in before.items():
        differing = {role for role, value in by_role.items() if after[host][role] != value}
        assert differing == {role for role in by_role if "pki" in roles_within(role)}
        assert "consul" in differing
        assert "base" not in differing


def test_a_helpers_variables_count_for_its_users(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    before = role_inputs(contract, {})
    data = inventory_data(contract, ROOT)
    data["all"]["vars"]["pki_days"] = 30
    monkeypatch.setattr(inputs, "inventory_data", lambda *_: data)
    after = role_inputs(contract, {})
    assert {role for role, value in before["tokyo-gpu-0"].items() if after["tokyo-gpu-0"][role] != value} == {
        "consul",
        "container_runtime",
        "log_shipper",
        "node_exporter",
    }
