"""What a role's work on a host depends on: a change runs the roles that it concerns, and where it does."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from infra import capabilities
from infra.drift import inputs
from infra.drift.inputs import FROM_A_NODE, Sources, options, role_inputs, sources_of
from infra.errors import CausewayError
from infra.ground import secrets
from infra.ground.contract import Contract
from infra.inventory.groups import group_hosts, inventory_data
from infra.inventory.roles import role_order, roles_within
from tests.unit.contracts import checkout as checkout
from tests.unit.contracts import contract as contract
from tests.unit.contracts import contract_of, own_checkout

ROOT = Path(__file__).resolve().parents[2]
GPU, CONTROL = "tokyo-gpu-0", "tokyo-control-0"
SERVERS = {CONTROL, "shanghai-control-0", "hall-control-0"}
NOT_DECLARED = {"names"}
"""What comes in the place of a discovery that is declared."""
Change = tuple[str, str]
"""Host and role."""


Inputs = dict[str, dict[str, str]]


def changed(before: Inputs, after: Inputs) -> set[Change]:
    """Hosts that were there before, with the roles whose inputs differ."""
    return {
        (host, role)
        for host, roles in before.items()
        for role, hash_ in roles.items()
        if after[host].get(role) != hash_
    }


def on(inputs: Inputs, *roles: str, region: str = "") -> set[Change]:
    return {(host, role) for host, own in inputs.items() for role in own if role in roles and region in host}


def append(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + text)


def test_a_dashboard_that_changes_concerns_grafana_alone(contract: Contract, checkout: Path) -> None:
    before = role_inputs(contract, {})
    append(checkout / "infra" / "capabilities" / "wan" / "watch" / "dashboards.py", "# another panel\n")
    assert {role for _, role in changed(before, role_inputs(contract, {}))} == {"grafana"}


def test_a_roles_files_are_read_once_however_many_hosts_take_it(
    contract: Contract, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def noted(role: str) -> Sources:
        read.append(role)
        return sources_of(role)

    monkeypatch.setattr(inputs, "sources_of", noted)
    monkeypatch.setattr(
        inputs, "tree_state", lambda *_, **__: ""
    )  # what somebody has read before is not known
    role_inputs(contract, {})
    assert sorted(read) == sorted(set(role_order()) - NOT_DECLARED)


@pytest.mark.usefixtures("checkout")
def test_nothing_changed_nothing_runs(contract: Contract) -> None:
    before = role_inputs(contract, {})
    looked_at = {role for roles in before.values() for role in roles}
    assert looked_at == set(role_order()) - NOT_DECLARED, "all roles are looked at"
    assert role_inputs(contract_of(), {}) == before


def test_what_up_itself_writes_concerns_none(contract: Contract, checkout: Path) -> None:
    before = role_inputs(contract, {})
    append(checkout / "inventories" / "s" / "causeway.yml", "plugin: causeway\n")
    assert role_inputs(contract, {}) == before


@pytest.mark.parametrize("role", role_order())
def test_a_comment_in_a_role_concerns_that_role_alone(role: str, contract: Contract, checkout: Path) -> None:
    before = role_inputs(contract, {})
    append(checkout / "roles" / role / "tasks" / "main.yml", "# why\n")
    assert changed(before, role_inputs(contract, {})) == on(before, role)


NO_ROLES = ("playbooks/library/causeway_undo.py", "playbooks/module_utils/causeway_prior.py")
"""What only leaving works by."""


@pytest.mark.parametrize(
    "file", ["roles/base/README.md", "roles/base/molecule/default/verify.yml", *NO_ROLES]
)
def test_what_no_node_gets_concerns_none(file: str, contract: Contract, checkout: Path) -> None:
    before = role_inputs(contract, {})
    append(checkout / file, "more\n")
    assert role_inputs(contract, {}) == before


@pytest.mark.parametrize(
    ("file", "roles"),
    [
        ("playbooks/module_utils/causeway_block.py", ["base"]),
        ("playbooks/module_utils/causeway_node.py", ["base"]),
        ("playbooks/module_utils/causeway_version.py", ["ceph", "cuda_base"]),
    ],
)
def test_what_modules_share_concerns_the_roles_whose_modules_import_it(
    file: str, roles: list[str], contract: Contract, checkout: Path
) -> None:
    """What a module writes on nodes is another thing once the module is: the words of a block, say."""
    before = role_inputs(contract, {})
    append(checkout / file, "# why\n")
    assert changed(before, role_inputs(contract, {})) == on(before, *roles)


def test_of_a_play_and_ansibles_settings_comments_do_not_count(contract: Contract, checkout: Path) -> None:
    before, plays, settings = (
        role_inputs(contract, {}),
        checkout / "playbooks" / "roles.yml",
        checkout / "ansible.cfg",
    )
    append(plays, "# why\n")
    append(settings, "\n# why\n")
    assert role_inputs(contract, {}) == before
    plays.write_text(plays.read_text().replace("- role: consul", "- role: consul\n      become: true"))
    assert changed(before, role_inputs(contract, {})) == on(before, "consul")
    append(settings, "\n[privilege_escalation]\nbecome_flags = -H\n")
    assert changed(before, role_inputs(contract, {})) == on(before, *role_order())


@pytest.mark.usefixtures("checkout")
def test_a_declared_value_runs_the_roles_that_read_it(contract: Contract) -> None:
    before = role_inputs(contract, {})

    def after(change: Callable[[dict[str, Any]], Any]) -> set[Change]:
        return changed(before, role_inputs(contract_of(change), {}))

    def tokyo(data: dict[str, Any]) -> Any:
        return data["regions"][0]

    assert after(lambda data: tokyo(data).update(timezone="Asia/Seoul")) == on(before, "base", region="tokyo")
    assert after(lambda data: data.update(authorized_keys=["ssh-ed25519 AAAA a@b"])) == on(before, "base")
    rate = after(lambda data: data["wan_links"][0].update(bandwidth_mbps=5000))
    assert (CONTROL, "tcp_tuning") in rate
    assert {role for _, role in rate} == {"tcp_tuning", "wan_gateway", "prometheus"}, "it sends no faster"
    marking = after(lambda data: tokyo(data)["fabric"].update(roce={"dscp": 30}))
    assert on(before, "roce") <= marking <= on(before, "roce", "wan_gateway", region="tokyo")


@pytest.mark.usefixtures("checkout")
def test_another_login_user_runs_the_roles_that_read_it(contract: Contract) -> None:
    before = role_inputs(contract, {})
    login = contract_of(lambda data: data["regions"][-1]["provider"].update(ssh_user="ada"))
    assert changed(before, role_inputs(login, {})) == on(before, "base", region="hall")


KNOW_OTHERS = {"prometheus", "nfs_server", "ceph", "ceph_client", "wan_gateway"}
"""Roles that let nodes in, ask them, are one of a few, or go to each of these: their variables name them."""


@settings(max_examples=30)  # of 60 cases; each plans a cluster
@given(
    region=st.sampled_from(["tokyo", "shanghai"]),
    pool=st.sampled_from(["gpu", "gateway", "edge", "storage", "files"]),
    more=st.integers(1, 3),
    discovery=st.booleans(),
)
def test_one_node_more_runs_only_what_reads_others(
    region: str, pool: str, more: int, discovery: bool, contract: Contract, shared_checkout: Path
) -> None:
    del shared_checkout

    def known(data: dict[str, Any]) -> None:
        if not discovery:
            del data["discovery"]

    def grown(data: dict[str, Any]) -> None:
        known(data)
        pools = next(one for one in data["regions"] if one["name"] == region)["pools"]
        for one in pools:
            one["count"] += more * (one["name"] == pool)

    before = role_inputs(contract if discovery else contract_of(known), {})
    found = changed(before, role_inputs(contract_of(grown), {}))
    grows = region == "tokyo" or pool != "files"
    answering = {(host, "names") for host in SERVERS} if grows and not discovery else set()
    assert {change for change in found if change[1] == "names"} == answering, "who answers for all names"
    assert {role for _, role in found - answering} <= KNOW_OTHERS
    assert {host for host, role in found if role == "prometheus"} <= SERVERS


def test_a_declared_file_runs_the_roles_that_copy_it(checkout: Path) -> None:
    def declared(data: dict[str, Any]) -> None:
        gpu = next(pool for pool in data["regions"][0]["pools"] if pool["role"] == "gpu")
        gpu["gpu_stack"]["source"] = {"key_file": "cuda.asc"}
        mirrored = {"name": "docker.io", "mirrors": ["mirror.example.org"], "ca_file": "ca.crt"}
        gpu["container_runtime"] = {"registries": [mirrored]}

    contract = contract_of(declared)
    readers = {"cuda.asc": "cuda_base", "ca.crt": "container_runtime", "grafana.asc": "grafana"}
    for name, role in readers.items():
        before = role_inputs(contract, {})
        (checkout / name).write_text("one")
        there = role_inputs(contract, {})
        assert changed(before, there) == on(before, role)
        (checkout / name).write_text("another")
        assert changed(there, role_inputs(contract, {})) == on(before, role)


@pytest.mark.usefixtures("checkout")
def test_one_node_more_runs_on_servers_that_let_it_in(contract: Contract) -> None:
    before = role_inputs(contract, {})

    def more(data: dict[str, Any]) -> None:
        next(pool for pool in data["regions"][0]["pools"] if pool["role"] == "gpu")["count"] += 1

    after = role_inputs(contract_of(more), {})
    assert len(after) == len(before) + 1
    assert changed(before, after) == {(CONTROL, "prometheus"), ("tokyo-files-0", "nfs_server")}


@pytest.mark.usefixtures("checkout")
def test_a_control_node_more_is_known_in_its_region(contract: Contract) -> None:
    before = role_inputs(contract, {})

    def more(data: dict[str, Any]) -> None:
        next(pool for pool in data["regions"][0]["pools"] if pool["role"] == "control")["count"] += 1

    found = changed(before, role_inputs(contract_of(more), {}))
    assert {change for change in found if change[1] == "base"} == on(before, "base", region="tokyo")


@pytest.mark.usefixtures("checkout")
def test_another_machine_by_the_same_name_takes_all_roles(contract: Contract) -> None:
    machines = {name: f"instance {name}" for name in contract.hosts}
    before = role_inputs(contract, machines)
    after = role_inputs(contract, machines | {GPU: "instance another"})
    assert changed(before, after) == {(GPU, role) for role in before[GPU]}


@pytest.mark.parametrize(
    ("secret", "role"), [("consul-gossip", "consul"), ("wireguard-trans-sea-tokyo", "wan_gateway")]
)
def test_a_secret_runs_the_roles_that_read_it(
    secret: str, role: str, contract: Contract, checkout: Path
) -> None:
    roles = capabilities.roles().values()
    kinds = {
        name: kind
        for role in roles
        for host in contract.hosts
        for name, kind in role.secrets(contract, host).items()
    }
    for name, kind in kinds.items():
        secrets.write(checkout / "s" / name, secrets.GENERATORS[kind]())
    before = role_inputs(contract, {})
    again = {
        name: secrets.fingerprint(secrets.read(checkout / "s" / name, kind) or {})
        for name, kind in kinds.items()
    }
    assert role_inputs(contract, {}, lambda name, _kind: again[name]) == before, "a roll-out and a scan agree"
    secrets.write(checkout / "s" / secret, secrets.GENERATORS[kinds[secret]]())
    assert changed(before, role_inputs(contract, {})) == on(before, role)


def test_a_lost_secret_of_a_node_makes_stale_what_names_it_and_nothing_else_of_it_counts(
    contract: Contract, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = capabilities.roles()
    naming = replace(known["drift_watch"], secrets=lambda _contract, _host: {"token": "node"})
    monkeypatch.setattr(capabilities, "roles", lambda: known | {"drift_watch": naming})
    planned = role_inputs(contract, {}, lambda _name, kind: FROM_A_NODE if kind == "node" else "")
    assert changed(planned, role_inputs(contract, {})) >= on(planned, "drift_watch"), "not made yet, or lost"
    for text in ("a token", "another"):
        secrets.write(checkout / "s" / "token", {"": text})
        assert changed(planned, role_inputs(contract, {})).isdisjoint(on(planned, "drift_watch"))


TARGETS = ("all", "region_tokyo", "pool_shanghai_gpu", "role_gateway", "feature_roce", GPU)


@pytest.fixture(scope="module")
def shared_checkout(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """No test changes its roles, so they are read once for all."""
    with pytest.MonkeyPatch.context() as patch:
        folder, read = own_checkout(tmp_path_factory.mktemp("checkout"), patch), cache(sources_of)
        patch.setattr(
            inputs,
            "sources_of",
            lambda role: read(role) if folder == vars(inputs)["ROOT"] else sources_of(role),
        )
        yield folder


@cache
def has(role: str) -> frozenset[str]:
    """The variables of a role, and of those that it uses."""
    return frozenset(option for used in roles_within(role, ROOT) for option in options(used))


@pytest.fixture(scope="module")
def untouched(contract: Contract, shared_checkout: Path) -> Inputs:
    """Without a variable of a user's."""
    del shared_checkout
    return role_inputs(contract, {})


@given(data=st.data())
def test_a_users_variable_runs_the_roles_that_have_it_where_it_is_set(
    data: st.DataObject, contract: Contract, shared_checkout: Path, untouched: Inputs
) -> None:
    folder = shared_checkout / "inventories" / "s"
    role, target = data.draw(st.sampled_from(role_order())), data.draw(st.sampled_from(TARGETS))
    name = data.draw(st.sampled_from([*options(role), "not_of_any_role", f"{role}_more"]))
    value = data.draw(st.sampled_from([1, "text", True, [1, "two"], {"a": None}]))
    kind = "host_vars" if target == GPU else "group_vars"
    file = folder / kind / data.draw(st.sampled_from([f"{target}.yml", f"{target}/more.yml", target]))
    file.parent.mkdir(parents=True)
    YAML().dump({name: value}, file)
    try:
        after = role_inputs(contract, {})
    finally:
        shutil.rmtree(folder / kind)
    members = {GPU} if target == GPU else group_hosts(inventory_data(contract, ROOT), [target])
    expected = {(host, each) for host in members for each in untouched[host] if name in has(each)}
    assert changed(untouched, after) == expected


@pytest.mark.parametrize(
    ("file", "text", "concerned"),
    [
        ("group_vars/all.yml", "mine: 1\nbase_timezone: '{{ mine }}'\n", ("base",)),
        ("group_vars/racks.yml", "consul_dns: stub\n", ("consul",)),
        ("group_vars/all/vault.yml", "$ANSIBLE_VAULT;1.1;AES256\n6162\n", role_order()),
        ("more_hosts.ini", "[racks]\ntokyo-gpu-0\n", role_order()),
    ],
    ids=["a template", "a group of the user's", "a vault", "another inventory"],
)
def test_what_cannot_be_told_apart_counts_for_more(
    file: str, text: str, concerned: tuple[str, ...], contract: Contract, checkout: Path
) -> None:
    before = role_inputs(contract, {})
    append(checkout / "inventories" / "s" / file, text)
    assert changed(before, role_inputs(contract, {})) == on(before, *concerned)


def test_a_template_follows_what_it_asks_for(contract: Contract, checkout: Path) -> None:
    file = checkout / "inventories" / "s" / "group_vars" / "all.yml"
    append(file, "mine: Asia/Tokyo\nbase_timezone: '{{ mine }}'\n")
    before = role_inputs(contract, {})
    file.write_text(file.read_text().replace("Asia/Tokyo", "Asia/Seoul"))
    assert changed(before, role_inputs(contract, {})) == on(before, "base")


def test_a_role_that_another_one_uses_is_part_of_it(contract: Contract, checkout: Path) -> None:
    before = role_inputs(contract, {})
    ways = {
        "tcp_tuning": (
            "tasks/more.yml",
            "- block:\n    - include_role: {name: helper}\n",
        ),
        "roce": ("meta/main.yml", "dependencies: [{role: helper}]\n"),
        "wan_gateway": ("library/more.py", "from ansible.module_utils.causeway_helper import x\n"),
    }
    for role, (file, text) in ways.items():
        target = checkout / "roles" / role / file
        target.unlink(missing_ok=True)
        append(target, text)
    append(checkout / "roles" / "helper" / "module_utils" / "causeway_helper.py", "x = 1\n")
    spec = "argument_specs: {main: {options: {helper_days: {type: int}}}}\n"
    append(checkout / "roles" / "helper" / "meta" / "argument_specs.yml", spec)
    using = role_inputs(contract, {})
    assert changed(before, using) == on(before, *ways)
    append(checkout / "roles" / "helper" / "tasks" / "main.yml", "# why\n")
    assert changed(using, role_inputs(contract, {})) == on(before, *ways)
    using = role_inputs(contract, {})
    append(checkout / "inventories" / "s" / "group_vars" / "all.yml", "helper_days: 3\n")
    assert changed(using, role_inputs(contract, {})) == on(before, *ways)
    append(target, "")
    task = "- ansible.builtin.include_role:\n    name: '{{ any }}'\n"
    append(checkout / "roles" / "base" / "tasks" / "odd.yml", task)
    with pytest.raises(CausewayError, match="cannot be told from"):
        role_inputs(contract, {})
