"""`causeway init`: what it writes is right, or it says which row of the list is wrong, and why."""

import asyncio
import base64
import getopt
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncssh
import pexpect
import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.vars.manager import VariableManager
from hypothesis import given
from hypothesis import strategies as st

from infra.checks import check, load_spec
from infra.checks.load import parse
from infra.cli import main
from infra.declaration import ClusterSpec, ExistingProvider
from infra.errors import BadInputError
from infra.intake import host_keys
from infra.intake.hops import Hop, hops, of_arguments
from infra.intake.inventory import read_inventory
from infra.intake.machine import Row
from infra.intake.place import OF_A_REGION, Wishes, of_groups, placed
from infra.intake.table import COLUMNS, read_table
from infra.intake.write import checked, declaration_text

ROOT = Path(__file__).parents[2]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHaSw601QLuAPAILOu5mzYiHEjI06gxucUPArdc/9DHt"
HEAD = "address,pool,host_key\n"
SIGNED = "pool,address,ssh_host_ca,ssh_jump\n"
INTO = "[control]\n10.0.0.3 ansible_ssh_common_args="
WISHES = Wishes(region="lab", gpus="8", gpu_model="h100-sxm")
TABLE = f"""name,address,region,pool,rack,gpus,gpu_model,ssh_user,ssh_port,host_key,serial
head,192.168.20.11,munich,control,r1,,,admin,,{KEY},1
n10,192.168.20.30,munich,gpu,r10,8,h100-sxm,admin,2222,{KEY},2
"n, the 1st",192.168.20.21,munich,gpu,r2,8,h100-sxm,admin,,{KEY},3
"""
INI = f"""
munich-head ansible_host=192.168.20.11
[munich_control]
munich-head
[munich_gpu]
n[09:11] # three of them
[munich:children]
munich_control
munich_gpu
[munich_gpu:vars]
gpus=8
gpu_model="h100-sxm"
ansible_port=2222
[all:vars]
ansible_user=admin
host_key={KEY}
ansible_ssh_common_args='-C -o ProxyCommand="ssh -W %h:%p -q -p 2222 eve@192.168.20.1"'
ansible_become_password=kept from everybody
ssh_jump_key={KEY}
[munich:vars]
ansible_user=ada
ansible_port=2200
"""
FROM_YAML = f"""
all:
  vars:
    ansible_user: admin
    host_key: {KEY}
    ansible_ssh_common_args: -C -o ProxyCommand="ssh -W %h:%p -q -p 2222 eve@192.168.20.1"
    ansible_become_password: kept from everybody
    ssh_jump_key: {KEY}
  hosts:
    munich-head: {{ansible_host: 192.168.20.11}}
  children:
    munich:
      vars: {{ansible_user: ada, ansible_port: 2200}}
      children:
        munich_control: {{hosts: {{munich-head: }}}}
        munich_gpu:
          hosts: {{"n[09:11]": }}
          vars: {{gpus: 8, gpu_model: h100-sxm, ansible_port: 2222}}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where declarations are written."""
    monkeypatch.setattr("infra.commands.arguments.ROOT", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(here: Path, source: str, text: str, *words: str) -> ClusterSpec:
    (here / source).write_text(text)
    assert main(["init", "lab", source, *words]) == 0
    return load_spec(here / "Pulumi.lab.yaml")


def test_a_table_becomes_regions_and_pools(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = written(here, "machines.csv", TABLE)
    region = spec.regions[0]
    assert (region.name, str(region.cidr), region.provider.ssh_user) == ("munich", "192.168.20.0/24", "admin")
    assert [(pool.name, pool.role, pool.count) for pool in region.pools] == [
        ("control", "control", 1),
        ("gpu", "gpu", 2),
    ]
    # Nodes fill racks in their order: r2 before r10.
    assert [(str(host.address), host.ssh_port) for host in region.pools[1].hosts] == [
        ("192.168.20.21", 22),
        ("192.168.20.30", 2222),
    ]
    text = (here / "Pulumi.lab.yaml").read_text()
    assert "# n, the 1st, rack r2\n" in text
    said = capsys.readouterr().err
    assert "serial" in said
    assert "no DNS labels, and are not given: n, the 1st\n" in said


def test_machines_keep_their_names_where_those_are_labels(here: Path) -> None:
    region = written(here, "machines.csv", TABLE).regions[0]
    assert [host.name for pool in region.pools for host in pool.hosts] == ["head", None, "n10"]


def addressed(text: str) -> str:
    """The same inventory with addresses for n09 to n11."""
    return text.replace("n[09:11]", "192.168.20.[21:23]")


@pytest.mark.parametrize(("name", "text"), [("hosts", INI), ("hosts.yml", FROM_YAML)])
def test_an_inventory_says_the_same_as_to_ansible(here: Path, name: str, text: str) -> None:
    """`ansible-inventory` is the judge of what an inventory means."""
    (here / "none.cfg").touch()
    ours = written(here, name, addressed(text), "--regions", "munich")
    listed = subprocess.run(
        ["ansible-inventory", "-i", name, "--list"],
        env={**os.environ, "ANSIBLE_CONFIG": str(here / "none.cfg")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    theirs = written(here, "list.json", listed, "--regions", "munich", "--force")
    assert ours == theirs
    provider = ours.regions[0].provider
    assert provider.sudo == "password"
    (jump,) = provider.ssh_jump
    assert (jump.address, jump.ssh_port, jump.ssh_user) == ("192.168.20.1", 2222, "eve")
    assert "kept from" not in (here / "Pulumi.lab.yaml").read_text()
    assert [(pool.name, pool.count) for pool in ours.regions[0].pools] == [("control", 1), ("gpu", 3)]
    assert [pool.hosts[0].ssh_port for pool in ours.regions[0].pools] == [2200, 2222]


@cache
def prepare_ansible() -> None:
    """It finds its own plugins only then, and warns where that is done twice."""
    init_plugin_loader()


GROUPS = ("a", "b", "c", "d")
SAID = st.dictionaries(
    st.sampled_from(["ansible_user", "ansible_port", "ansible_host", "ansible_group_priority"]),
    st.sampled_from(["1", "9", "22", "'7'", '"8"']),
    max_size=3,
)
NAMED = st.sampled_from(["h1", "h2", "h[1:3]", "h2:2222", "h[2:3]:2200", "'h1'"])
SHOWN = {"ansible_host": "address", "ansible_user": "ssh_user", "ansible_port": "ssh_port"}


@given(
    st.lists(st.tuples(st.sampled_from(GROUPS), NAMED, SAID), min_size=1, max_size=5),
    st.lists(st.tuples(st.sampled_from(GROUPS), st.sampled_from(GROUPS)), max_size=4),
    st.dictionaries(st.sampled_from([*GROUPS, "all"]), SAID, max_size=4),
)
def test_whatever_groups_say_of_a_host_what_holds_is_what_holds_for_ansible(
    hosts: list[tuple[str, str, dict[str, str]]],
    below: list[tuple[str, str]],
    said: dict[str, dict[str, str]],
) -> None:
    lines = [f"[{group}]" for group in GROUPS]
    for group, name, own in hosts:
        lines += [f"[{group}]", " ".join([name, *(f"{key}={value}" for key, value in own.items())])]
    for one, other in below:
        if one != other:  # a group that contains itself is none to Ansible
            lines += [f"[{min(one, other)}:children]", max(one, other)]
    for group, shared in said.items():
        lines += [f"[{group}:vars]", *(f"{key}={value}" for key, value in shared.items())]
    text = "\n".join([*lines, ""])
    with TemporaryDirectory() as folder:
        Path(folder, "hosts.ini").write_text(text)
        prepare_ansible()
        loader = DataLoader()
        inventory = InventoryManager(loader=loader, sources=[f"{folder}/hosts.ini"])
        variables = VariableManager(loader=loader, inventory=inventory)
        theirs = {
            host.name: variables.get_vars(host=host, include_hostvars=False) for host in inventory.get_hosts()
        }
    ours = {one.row.name: one.row.values for one in read_inventory(text, "hosts.ini")}
    assert ours == {
        name: {"address": name} | {SHOWN[key]: str(found[key]) for key in SHOWN if key in found}
        for name, found in theirs.items()
    }, text


def test_arguments_for_ssh_keep_the_quotes_inside_of_them(here: Path) -> None:
    """As they stand in most inventories: without quotes around all."""
    way = '-o ProxyCommand="ssh -W %h:%p -q eve@192.0.2.1"'
    text = f"[control]\n10.0.0.3\n[all:vars]\nansible_ssh_common_args={way}\n"
    text += f"host_key={KEY}\nssh_jump_key={KEY}\n"
    (jump,) = written(here, "hosts", text).regions[0].provider.ssh_jump
    assert (jump.address, jump.ssh_user) == ("192.0.2.1", "eve")


@pytest.mark.parametrize("before", ["sep=;\r\n", "\ufeffsep=;\n", "\n \n", "\ufeff\r\n"])
def test_a_table_begins_where_its_columns_are_named(
    here: Path, capsys: pytest.CaptureFixture[str], before: str
) -> None:
    """A spreadsheet writes lines before it, also for itself."""
    text = before + f"{HEAD}10.0.0.3,control,{KEY}\n".replace(",", ";")
    assert str(written(here, "machines", text).regions[0].pools[0].hosts[0].address) == "10.0.0.3"
    (here / "machines").write_text(text.replace("10.0.0.3", "x"))
    assert main(["init", "lab", "machines", "--force"]) == 2
    number = 2 + before.count("\n")
    assert f"machines:{number}: x: x is not an IPv4 address" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--regions", "toyko"], "no machine is in a group toyko\n  → there are: munich"),
        (["--regions", "munich", "--pools", "munich_control,gpus"], "no machine is in a group gpus"),
        (["--regions", "munich", "--role", "gpus=gpu"], "no pool gpus\n  → there are: control, gpu"),
        (["--regions", "munich", "--cidr", "tokyo=10.0.0.0/8"], "no region tokyo\n  → there are: munich"),
        (["--regions", "munich", "--jump-key", f"far={KEY}"], "no jump host far"),
    ],
)
def test_an_option_that_is_about_nothing_is_named(
    here: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    """Or machines would stand in another region than the one that somebody meant."""
    (here / "hosts").write_text(addressed(INI))
    assert main(["init", "lab", "hosts", *words]) == 2
    assert said in capsys.readouterr().err
    (here / "m.csv").write_text(TABLE)
    assert main(["init", "lab", "m.csv", *words]) == 2
    assert not (here / "Pulumi.lab.yaml").exists()


def test_several_users_in_a_region_are_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "hosts").write_text(addressed(INI).replace("=192.168.20.11", "=192.168.20.11 ansible_user=eve"))
    assert main(["init", "lab", "hosts", "--regions", "munich"]) == 2
    assert "ssh_user is ada, but eve at hosts:2; region munich has one" in capsys.readouterr().err
    assert not (here / "Pulumi.lab.yaml").exists()


def test_regions_need_links(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TABLE + f"far,192.168.30.11,osaka,control,,,,,,{KEY},4\n"
    (here / "m.csv").write_text(text)
    assert main(["init", "lab", "m.csv"]) == 2
    said = capsys.readouterr().err
    assert "m.csv:5: far: region osaka: no WAN link reaches region osaka" in said
    assert "--link A,B,MS,MBPS" in said
    spec = written(here, "m.csv", text, "--link", "munich,osaka,230.5,1000")
    assert (spec.wan_links[0].rtt_ms, spec.wan_links[0].bandwidth_mbps) == (230.5, 1000)


def test_a_file_is_never_replaced_unasked_and_then_kept(here: Path) -> None:
    (here / "Pulumi.lab.yaml").write_text("mine\n")
    (here / "m.csv").write_text(TABLE)
    assert main(["init", "lab", "m.csv"]) == 2
    assert (here / "Pulumi.lab.yaml").read_text() == "mine\n"
    assert main(["init", "lab", "m.csv", "--force"]) == 0
    assert (here / "Pulumi.lab.yaml.old").read_text() == "mine\n"
    assert load_spec(here / "Pulumi.lab.yaml").name == "lab"
    assert main(["init", "lab", "m.csv", "--force", "--user", "eve"]) == 0
    assert (here / "Pulumi.lab.yaml.old").read_text() == "mine\n", "it may have the stack's secrets"
    assert load_spec(here / "Pulumi.lab.yaml.old2") == load_spec(here / "Pulumi.lab.yaml")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("m.csv", "name,pool\na,gpu\n", "m.csv:1: the column address is missing"),
        ("m.csv", HEAD + f"10.0.0.300,gpu,{KEY}\n", "m.csv:2: 10.0.0.300: 10.0.0.300 is not an IPv4"),
        ("m.csv", HEAD + f"10.0.0.3,things,{KEY}\n", "m.csv:2: 10.0.0.3: pool things: its role is not said"),
        ("m.csv", HEAD + f"10.0.0.3,gpu,{KEY}\n", "m.csv:2: 10.0.0.3: pool gpu has no gpus and gpu_model"),
        ("m.csv", HEAD + "10.0.0.3,control,SHA256:x\n", "m.csv:2: 10.0.0.3: host_key: a fingerprint"),
        ("m.csv", HEAD + "10.0.0.3,control\n", "m.csv:2: 10.0.0.3: it has no host key"),
        (
            "m.csv",
            HEAD + f"10.0.0.3,control,{KEY}\n" * 2,
            "m.csv:3: 10.0.0.3: address: 10.0.0.3 is already the address of m.csv:2",
        ),
        (
            "m.csv",
            f"name,{HEAD}n1,10.0.0.3,control,{KEY}\nn1,10.0.0.4,control,{KEY}\n",
            'm.csv:3: n1: name: "n1" is already the name of m.csv:2',
        ),
        ("hosts", "[gpu]\na ansible_host='{{ x }}'\n", "hosts:2: a: address is a template"),
        ("hosts", "[gpu]\na b\n", "hosts:2: after a host stands NAME=VALUE, not b"),
        ("hosts", "[a]\n10.0.0.3\n[b]\n10.0.0.3\n", "hosts:2: 10.0.0.3: is in the groups a, b"),
        ("hosts", "10.0.0.3\n", "hosts:1: 10.0.0.3: nothing says its pool"),
        ("i.yml", "all:\n  hosts:\n    a: {k: !vault x}\n", "i.yml:3: all.hosts.a.k: the YAML tag !vault"),
        ("i.yml", "all:\n  host: {}\n", "i.yml:2: all.host: a group has hosts, children and vars"),
        (
            "m.csv",
            SIGNED + f"control,10.0.0.3,{KEY},b\ncontrol,10.0.0.4,{KEY},c\n",
            "m.csv:3: 10.0.0.4: ssh_jump is c, but b at",
        ),
        ("m.csv", SIGNED + f"control,10.0.0.3,{KEY},b\n", "region lab: its jump host: it has no host key"),
        (
            "m.csv",
            SIGNED + f"control,10.0.0.3,{KEY},b c\n",
            "m.csv:2: 10.0.0.3: region lab: ssh_jump: b c is no jump",
        ),
        (
            "m.csv",
            SIGNED + "control,10.0.0.3,x,\n",
            "m.csv:2: 10.0.0.3: region lab, provider.ssh_host_ca: not a host",
        ),
        (
            "hosts",
            f"{INTO}'-o ProxyCommand=\"nc b %h %p\"'\n",
            "hosts:2: 10.0.0.3: its arguments for ssh: the",
        ),
        ("hosts", f"{INTO}'-F other'\n", "hosts:2: 10.0.0.3: its arguments for ssh: ssh is to read other"),
        (
            "hosts",
            f"{INTO}'-o ProxyCommand'\n",
            "hosts:2: 10.0.0.3: its arguments for ssh: -o ProxyCommand se",
        ),
        ("hosts", f"{INTO}'-C b'\n", "hosts:2: 10.0.0.3: its arguments for ssh: b is no option"),
        ("hosts", f"{INTO}'-Y -X -J'\n", "hosts:2: 10.0.0.3: its arguments for ssh: option -J requires"),
        ("hosts", f"{INTO}'{{{{ arguments }}}}'\n", "hosts:2: 10.0.0.3: ssh_jump is a template"),
        (
            "hosts",
            f"{INTO}'-o ProxyCommand=\"ssh -i k -W %h:%p b\"'\n",
            "hosts:2: 10.0.0.3: the jump host takes the key k, the machine none that is named",
        ),
        (
            "hosts",
            "[control]\n10.0.0.3 ansible_user=a ansible_become_pass=x\n10.0.0.4 ansible_user=a\n",
            "hosts:3: 10.0.0.4: sudo is nothing, but password at hosts:2; region lab has one",
        ),
        ("i.json", "[]", "i.json:1: not the name of a group: []"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(
    here: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, said: str
) -> None:
    (here / name).write_text(text)
    assert main(["init", "lab", name]) == 2
    assert said in capsys.readouterr().err
    assert not (here / "Pulumi.lab.yaml").exists()


ODD = st.sampled_from(
    ["", " ", "#", "a: b", "{{ x }}", "ü", "-", "*x", "'", '"', "1.5", "true", "10.0.0.256", "\x1b[2J"]
)
WORDS = st.one_of(ODD, st.text(max_size=8))
GOOD: dict[str, st.SearchStrategy[str]] = {
    "name": st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True),
    "address": st.builds("10.{}.0.{}".format, st.integers(0, 2), st.integers(1, 254)),
    "region": st.just("tokyo"),
    "pool": st.sampled_from(["control", "gpu", "gpu_b", "Storage", "edge-gw"]),
    "role": st.just(""),
    "rack": st.sampled_from(["", "r1", "r2", "r10"]),
    "gpus": st.just(""),
    "gpu_model": st.just(""),
    "nics": st.just(""),
    "nic_gbps": st.just(""),
    "ssh_user": st.just("ada"),
    "ssh_port": st.sampled_from(["", "22", "2222"]),
    "ssh_key_file": st.just("/keys/a b"),
    "host_key": st.just(KEY),
    **{column: st.just("") for column in OF_A_REGION[2:]},
}  # fmt: skip


@st.composite
def machines(draw: st.DrawFn) -> list[dict[str, str]]:
    """Mostly right, and now and then something in a cell."""
    rows = draw(st.lists(st.fixed_dictionaries(GOOD), min_size=1, max_size=6))
    for _ in range(draw(st.integers(0, 2))):
        draw(st.sampled_from(rows))[draw(st.sampled_from(COLUMNS))] = draw(WORDS)
    return rows


def outcome(read: Callable[[], list[Row]]) -> str:
    """What is complained of; nothing where a declaration came of it, which then is read and checked anew."""
    path = Path("Pulumi.lab.yaml")
    try:
        rows = read()
        regions = placed(rows, WISHES)
        text = declaration_text("lab", regions, (), "a list")
        checked(text, path, regions)
    except BadInputError as error:
        return error.message
    declaration = parse(text, path)
    assert not [each for each in check(declaration.spec, declaration.source) if each.severity == "error"]
    pools = [pool for region in declaration.spec.regions for pool in region.pools]
    listed = sorted(str(host.address) for pool in pools for host in pool.hosts)
    assert listed == sorted(row.get("address") for row in rows)
    return ""


def quoted(cells: list[str]) -> str:
    return ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)


@given(machines())
def test_any_table_is_written_right_or_its_row_is_named(listed: list[dict[str, str]]) -> None:
    lines = [",".join(COLUMNS), *(quoted([row[column] for column in COLUMNS]) for row in listed)]
    for line in outcome(lambda: read_table("\n".join(lines), "m.csv")[0]).splitlines():
        assert re.match(r"m\.csv:\d+: ", line), line


@given(machines(), st.sampled_from(["yaml", "list"]))
def test_any_inventory_is_written_right_or_its_host_is_named(listed: list[dict[str, str]], form: str) -> None:
    hosts = {f"h{n}": {**row, "ansible_host": row["address"]} for n, row in enumerate(listed)}
    tree: dict[str, Any] = {"all": {"hosts": hosts}}
    if form == "list":
        tree = {"_meta": {"hostvars": hosts}, "all": {"hosts": list(hosts)}}
    said = outcome(lambda: of_groups(read_inventory(json.dumps(tree), "list.json"), (), ()))
    for line in said.splitlines():
        assert re.match(r"list\.json:\d+: h\d+: ", line), line


WORDS_FOR_SSH = st.lists(
    st.sampled_from(
        ["-J", "-o", "-W", "ProxyJump=a", "ProxyCommand=ssh", "ssh -W %h:%p", "b:0", "'", '"', "-F", "@"]
    )
).map(" ".join)


@given(st.one_of(WORDS_FOR_SSH, st.text(max_size=20)))
def test_any_arguments_for_ssh_are_a_way_or_are_refused(text: str) -> None:
    with suppress(ValueError, getopt.GetoptError):
        hops(",".join(map(str, of_arguments(text).hops)))


def public_key(number: int) -> str:
    """A host key like no other's, in form."""
    kind = b"ssh-ed25519"
    raw = len(kind).to_bytes(4, "big") + kind + (32).to_bytes(4, "big") + bytes([number]) * 32
    return f"ssh-ed25519 {base64.b64encode(raw).decode()}"


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,6}", fullmatch=True)
HOPS = st.builds(
    Hop,
    address=st.one_of(NAMES, st.just("b.example.org"), st.builds("10.9.0.{}".format, st.integers(1, 9))),
    user=st.one_of(st.just(""), NAMES),
    port=st.one_of(st.just(""), st.integers(1, 65535).map(str)),
    key=st.integers(0, 255).map(public_key),
)
WAYS = st.fixed_dictionaries(
    {
        "ssh_user": NAMES,
        "ssh_agent": st.booleans(),
        "ssh_host_ca": st.one_of(st.none(), st.just(public_key(0))),
        "sudo": st.sampled_from(["passwordless", "password"]),
        "ssh_jump": st.lists(HOPS, max_size=3),
    }
)
NOISE = st.sampled_from(["", "-C ", "-o ControlMaster=auto -o ControlPersist=60s ", "-F /dev/null -4A "])
SPELLINGS = ("-J {}", "-J{}", "-o ProxyJump={}", "-oProxyJump={}", "-o 'ProxyJump {}'", "command")


def read_back(rows: list[Row], way: Mapping[str, Any]) -> None:
    """What is written of these machines is good, and is this way in."""
    regions = placed(rows, WISHES)
    text = declaration_text("lab", regions, (), "a list")
    checked(text, Path("x"), regions)
    provider = parse(text, Path("x")).spec.regions[0].provider
    assert isinstance(provider, ExistingProvider)
    for key in ("ssh_user", "ssh_agent", "ssh_host_ca", "sudo"):
        assert getattr(provider, key) == way[key], key
    assert [
        Hop(jump.address, jump.ssh_user or "", str(jump.ssh_port), jump.host_key)
        for jump in provider.ssh_jump
    ] == [replace(hop, port=hop.port or "22") for hop in way["ssh_jump"]]


@given(WAYS, st.sampled_from([str, str.upper, lambda said: {"True": "yes", "False": "no"}[said]]))
def test_a_way_in_of_a_table_reads_back_the_same(way: dict[str, Any], spelled: Callable[[str], str]) -> None:
    way_in = {
        **{key: way[key] or "" for key in ("ssh_user", "ssh_host_ca", "sudo")},
        "ssh_agent": spelled(str(way["ssh_agent"])),
        "ssh_jump": ",".join(map(str, way["ssh_jump"])),
        "ssh_jump_key": ", ".join(hop.key for hop in way["ssh_jump"]),
    }
    cells = {"address": "10.0.0.3", "pool": "control", "host_key": KEY, **way_in}
    lines = [
        ",".join(cells),
        quoted(list(cells.values())),
        quoted(list({**cells, "address": "10.0.0.4"}.values())),
    ]
    read_back(read_table("\n".join(lines), "m.csv")[0], way)


@given(WAYS, NOISE, st.sampled_from(SPELLINGS), st.sampled_from(["ssh", "/usr/bin/ssh"]))
def test_a_way_in_of_an_inventory_reads_back_the_same_and_no_password(
    way: dict[str, Any], noise: str, spelling: str, program: str
) -> None:
    jumps = way["ssh_jump"]
    arguments = spelling.format(",".join(map(str, jumps))) if jumps else ""
    if jumps and spelling == "command":
        before, last = ",".join(map(str, jumps[:-1])), jumps[-1]
        words = [program, *(["-J", before] if before else []), "-q", "-W", "[%h]:%p", "-l", last.user or "%r"]
        words += [*(["-p", last.port] if last.port else []), last.address]
        arguments = f"-o {shlex.quote('ProxyCommand=' + shlex.join(words))}"
    secret = "Kept from everybody"  # noqa: S105 - the test's own
    variables = {
        "ansible_user": way["ssh_user"],
        "ansible_ssh_common_args": noise + arguments,
        "ssh_agent": way["ssh_agent"],
        "ssh_jump_key": ",".join(hop.key for hop in jumps),
        "host_key": KEY,
        **({"ssh_host_ca": way["ssh_host_ca"]} if way["ssh_host_ca"] else {}),
        **({"ansible_become_password": {"__ansible_vault": secret}} if way["sudo"] == "password" else {}),
    }
    tree = {"_meta": {"hostvars": {"10.0.0.3": variables}}, "control": {"hosts": ["10.0.0.3"]}}
    rows = of_groups(read_inventory(json.dumps(tree), "list.json"), (), ())
    assert secret not in str(rows)
    read_back(rows, way)


@given(st.text(alphabet="[]:=# \n\tab019{}'\"-,", max_size=60))
def test_any_text_is_an_inventory_or_is_refused(text: str) -> None:
    def hosts() -> list[Row]:
        return of_groups(read_inventory(text, "x"), (), ())

    for read in (hosts, lambda: read_table(text, "x")[0]):
        with suppress(BadInputError):
            read()


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, str]]:
    """An SSH server with keys of two kinds: (its port, the fingerprint of the better one, by ssh-keygen)."""
    folder = tmp_path_factory.mktemp("keys")
    keys = [asyncssh.generate_private_key(kind) for kind in ("ecdsa-sha2-nistp256", "ssh-ed25519")]
    keys[1].write_public_key(folder / "key.pub")
    said = subprocess.run(
        ["ssh-keygen", "-lf", folder / "key.pub"], capture_output=True, text=True, check=True, timeout=10
    ).stdout.split()[1]
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncssh.listen("127.0.0.1", 0, server_host_keys=keys))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield server.get_port(), said
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def test_machines_are_asked_for_their_best_key(sshd: tuple[int, str]) -> None:
    port, said = sshd
    rows = [
        Row("a", "a", {"address": "127.0.0.1", "ssh_port": str(port)}),
        Row("b", "b", {"address": "127.0.0.1", "ssh_port": "1"}),
    ]
    found = host_keys.asked(rows)
    assert list(found) == [("127.0.0.1", str(port))]
    key = found["127.0.0.1", str(port)]
    assert (key.split()[0], host_keys.fingerprint(key)) == ("ssh-ed25519", said)


def test_a_jump_host_is_asked_for_its_key_as_machines_are(here: Path, sshd: tuple[int, str]) -> None:
    port, said = sshd
    text = HEAD + f"10.0.0.3,control,{KEY}\n"
    spec = written(here, "m.csv", text, "--jump", f"127.0.0.1:{port}", "--accept-host-keys")
    (jump,) = spec.regions[0].provider.ssh_jump
    assert host_keys.fingerprint(jump.host_key) == said


def test_options_say_what_the_list_does_not(here: Path) -> None:
    words = ["--user", "ada", "--agent", "--host-ca", public_key(1), "--sudo-secret", "sudo-lab"]
    words += [
        "--jump",
        "b:2222,eve@c",
        "--jump-key",
        f"b:2222={public_key(2)}",
        "--jump-key",
        f"c={public_key(3)}",
    ]
    provider = written(here, "m.csv", "address,pool\n10.0.0.3,control\n", *words).regions[0].provider
    assert isinstance(provider, ExistingProvider)
    assert (provider.ssh_agent, provider.ssh_host_ca) == (True, public_key(1))
    assert (provider.sudo, provider.sudo_password_secret) == ("password", "sudo-lab")
    assert [jump.host_key for jump in provider.ssh_jump] == [public_key(2), public_key(3)]


def test_a_few_questions_on_a_terminal(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; import infra.commands.arguments as a; a.ROOT = pathlib.Path.cwd(); "
        "from infra.intake import host_keys; "
        f"host_keys.asked = lambda rows: {{(r.get('address'), '22'): '{KEY}' for r in rows}}; "
        "from infra.cli import main; sys.exit(main(['init', 'lab', '--host-keys']))"
    )
    terminal = pexpect.spawn(
        sys.executable,
        ["-c", program],
        cwd=str(tmp_path),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        encoding="utf-8",
        timeout=30,
    )
    for asked, answer in (
        ("Region", "Munich"),
        ("Who logs in", "ada"),
        ("private key.*agent", "agent"),
        ("Jump hosts", "eve@192.168.20.1"),
        ("sudo there ask ada", "yes"),
        ("Machine 1", "192.168.20.11 control"),
        ("Machine 2", "192.168.20.21 gpu"),
        ("Machine 3", ""),
        ("GPUs of each", ""),
        ("model", ""),
        ("SHA256:.*Take these keys", "yes"),
    ):
        terminal.expect(asked)
        terminal.sendline(answer)
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    spec = load_spec(tmp_path / "Pulumi.lab.yaml")
    assert [(pool.name, pool.gpus) for pool in spec.regions[0].pools] == [("control", 0), ("gpu", 8)]
    provider = spec.regions[0].provider
    assert (spec.regions[0].name, provider.ssh_user, provider.sudo) == ("munich", "ada", "password")
    assert (provider.ssh_agent, provider.ssh_key_file) == (True, None)
    (jump,) = provider.ssh_jump
    assert (jump.address, jump.ssh_user, jump.host_key) == ("192.168.20.1", "eve", KEY)
