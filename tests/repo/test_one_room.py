"""A capability is one room: three invented ones, put into a copy of the checkout, go all the way.

What each needs outside its own places stands in `SHARED`, and nothing else: where another file has to know
a new capability, one of these tests fails.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
ROOMS = Path(__file__).with_name("rooms")
SHARED = {
    "infra/capabilities/__init__.py": 1,  # an entry in the list of capabilities
    "infra/declaration/cluster.py": 3,  # the field, what it means, and where its type stands
    "playbooks/roles.yml": 11,  # the role's place in the order
}
"""Files that capabilities share → the most lines that one takes there."""
DECLARED: dict[str, dict[str, Any]] = {
    "cache": {"gib": 20},
    "ports": {"folder": "/etc"},
    "beacon": {"colour": "green"},
}
NODES = 10
FEATURES = {"cache": NODES, "ports": NODES, "beacon": 2}
"""Role → how many hosts of the default stack take it."""


def own_places(room: str) -> tuple[str, ...]:
    """Where files are nobody's business but the capability's."""
    tests = (
        f"verify/{room}/", f"preflights/{room}.yml", f"texts/{room}.yml", f"components/test_{room}.py"
    )  # fmt: skip
    return (
        f"infra/capabilities/{room}/",
        f"infra/declaration/{room}.py",
        f"roles/{room}/",
        "toolchain/install-",
        *(f"tests/{path}" for path in tests),
    )


def unpacked(room: str) -> Iterator[tuple[str, str]]:
    """Path and text of each file of an invented capability."""
    _, *parts = re.split(r"^=== (\S+)\n", (ROOMS / f"{room}.txt").read_text(), flags=re.MULTILINE)
    yield from zip(parts[::2], parts[1::2], strict=True)


def add(folder: Path, room: str) -> None:
    """Everything that whoever brings a capability has to write."""
    for name, text in unpacked(room):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((target.read_text() + "\n" if name in SHARED else "") + text)
    spec = f"{room.capitalize()}Spec"
    edit(folder / "infra/capabilities/__init__.py", r"^(NAMES = \([^)]*)\)$", rf'\1    "{room}",\n)')
    cluster = folder / "infra/declaration/cluster.py"
    edit(cluster, r"^(from infra.declaration.discovery)", rf"from infra.declaration.{room} import {spec}\n\1")
    edit(cluster, r"^(    waves: )", rf'    {room}: {spec} | None = None\n    """Invented."""\n\1')


def edit(file: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, file.read_text(), flags=re.MULTILINE)
    assert count == 1, f"{file}: {pattern}"
    file.write_text(text)


class Checkout:
    """A copy of this checkout in which the three stand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plain = self.files()
        self.lines: dict[str, dict[str, int]] = {}
        for room in DECLARED:
            before = self.files()
            add(folder, room)
            self.lines[room] = {
                name: changed(before.get(name, ""), text) for name, text in self.files().items()
            }
        declaration = YAML(typ="safe").load((folder / "Pulumi.local.yaml").read_text())
        declaration["config"]["causeway:cluster"] |= DECLARED
        self.declaration = folder / "Pulumi.rooms.yaml"
        YAML().dump(declaration, self.declaration)

    def files(self) -> dict[str, str]:
        """Every file of the copy, as text."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_text(errors="replace") for path in found}

    def run(self, *command: str, expect: int = 0) -> str:
        """What a command printed that ended with the status `expect`."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=os.environ
            | {"PYTHONPATH": str(self.folder), "ANSIBLE_CONFIG": str(self.folder / "ansible.cfg")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if expect else subprocess.PIPE,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == expect, f"{command}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def causeway(self, *words: str, expect: int = 0) -> str:
        return self.run(sys.executable, "-m", "infra.cli", *words, expect=expect)

    def python(self, program: str) -> Any:
        """What a program prints as JSON."""
        return json.loads(self.run(sys.executable, "-c", program))

    def variables(self) -> dict[str, dict[str, Any]]:
        """Host → its variables, as Ansible has them; a text that is no template comes wrapped."""
        text = self.run("ansible-inventory", "-i", "inventories/rooms", "--list")
        found = json.loads(text, object_hook=lambda value: value.get("__ansible_unsafe", value))
        return dict(found["_meta"]["hostvars"])


def changed(before: str, after: str) -> int:
    """How many lines were added or altered."""
    lines = unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return sum(line.startswith("+") and not line.startswith("+++") for line in lines)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """Of the files that git knows or would; with a contract, as far as one gets without nodes."""
    folder = tmp_path_factory.mktemp("rooms") / "checkout"
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    copy = Checkout(folder)
    copy.run(
        sys.executable,
        "-c",
        "from pathlib import Path\n"
        "from infra.checks.load import load_spec\n"
        "from infra.components.inventory_files import INVENTORY_SOURCE\n"
        "from infra.files import write_file\n"
        "from infra.planning.contract import build_contract\n"
        "from infra.planning.plan import make_plan\n"
        "spec = load_spec(Path('Pulumi.rooms.yaml'))\n"
        "contract = build_contract(spec, make_plan(spec), 'rooms')\n"
        "write_file(Path('.causeway/stacks/rooms/contract.json'), contract.model_dump_json(indent=1))\n"
        "write_file(Path('inventories/rooms/causeway.yml'), INVENTORY_SOURCE)\n",
    )
    return copy


@pytest.mark.parametrize("room", DECLARED)
def test_it_touches_its_own_places_and_a_line_here_and_there(room: str, checkout: Checkout) -> None:
    touched = {name: count for name, count in checkout.lines[room].items() if count}
    elsewhere = {name: count for name, count in touched.items() if not name.startswith(own_places(room))}
    assert elsewhere == SHARED


def test_check_knows_its_models_and_its_rules(checkout: Checkout) -> None:
    checkout.causeway("check", "Pulumi.rooms.yaml")
    text = checkout.declaration.read_text()
    wrong = checkout.folder / "wrong.yaml"
    for old, new, told in (
        ("gib: 20", "gib: 0", "cache.gib"),
        ("gib: 20", "gigs: 20", "a cache has no such key"),
        ("colour: green", "colour: 3", "beacon.colour"),
    ):
        wrong.write_text(text.replace(old, new))
        assert told in checkout.causeway("check", "wrong.yaml", expect=2)


def test_its_texts_are_among_those_that_are_tried(checkout: Checkout) -> None:
    tried = ("tests/unit/test_checks_texts.py", "-k", "every_text")
    checkout.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tried)


def test_its_fields_are_in_the_reference_and_the_schema(checkout: Checkout) -> None:
    page = checkout.python(
        "import json; from infra.checks.reference import reference; print(json.dumps(reference()))"
    )
    assert "### `cache`\n" in page
    assert "| `gib` | GiB | *required* | whole number: at least 1 |" in page
    assert "| `cache-size` | error |" in page
    schema = json.loads(checkout.causeway("schema"))
    assert {"cache", "ports", "beacon"} <= set(schema["$defs"]["ClusterSpec"]["properties"])


def test_plan_reports_it(checkout: Checkout) -> None:
    report = json.loads(checkout.causeway("plan", "Pulumi.rooms.yaml", "--json"))
    assert report["caches"] == len(report["nodes"])
    assert "cache 7001" in report["listening"]
    assert "consul-rpc 8300" in report["listening"]
    assert f"Caches: {NODES}" in checkout.causeway("plan", "Pulumi.rooms.yaml")


def test_contract_and_inventory_carry_it(checkout: Checkout) -> None:
    contract = json.loads((checkout.folder / ".causeway/stacks/rooms/contract.json").read_text())
    assert {"cache", "ports"} <= set(contract["sections"])
    own = checkout.variables()
    assert {host: own[host]["cache_gib"] for host in own} == dict.fromkeys(contract["hosts"], 20)
    assert own["tokyo-gpu-0"]["cache_nearest"] == "shanghai"
    assert "cache 7001" in own["tokyo-gpu-0"]["ports_listening"]
    kept = Path(own["tokyo-gpu-0"]["cache_token_file"])
    assert kept == checkout.folder / ".causeway/stacks/rooms/secrets/cache-token"


def test_others_find_and_class_what_listens(checkout: Checkout) -> None:
    gateway = checkout.variables()["tokyo-gateway-0"]
    assert "7001" in gateway["wan_gateway_scheduler_ports"]
    assert "cache" in {service["name"] for service in gateway["consul_services"]}


@pytest.mark.parametrize(("role", "hosts"), FEATURES.items())
def test_its_role_runs_in_its_place_on_its_hosts(role: str, hosts: int, checkout: Checkout) -> None:
    play = ("ansible-playbook", "playbooks/site.yml", "-i", "inventories/rooms", "--tags", role)
    listed = checkout.run(*play, "--list-hosts", "--list-tasks")
    assert f"hosts ({hosts})" in listed.split(f"[{role}]")[1]
    assert f"{role} : " in listed
    assert "consul : Install" not in listed


def test_its_roles_are_held_to_the_rules_of_roles(checkout: Checkout) -> None:
    rules = ("tests/repo/test_role_variables.py", "tests/repo/test_units.py")
    checkout.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *rules)
    preflights = ("tests/repo/test_preflights.py", "-k", "ports or elsewhere")
    checkout.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *preflights)


def test_its_imports_run_downwards(checkout: Checkout) -> None:
    layers = (
        "import json; from tests.repo.layers import upward; print(json.dumps([str(one) for one in upward()]))"
    )
    assert checkout.python(layers) == []


def test_what_its_role_depends_on_is_known(checkout: Checkout) -> None:
    program = (
        "import json; from infra.ground.contract import load_contract; from pathlib import Path\n"
        "from infra.drift.inputs import role_inputs\n"
        "contract = load_contract(Path('.causeway/stacks/rooms/contract.json'))\n"
        "print(json.dumps(role_inputs(contract, {})))"
    )
    before = checkout.python(program)
    assert {"cache", "ports", "beacon"} <= set(before["tokyo-control-0"])
    variables = checkout.folder / "inventories" / "rooms" / "host_vars" / "tokyo-control-0.yml"
    variables.parent.mkdir()
    variables.write_text("cache_gib: 30\n")
    after = checkout.python(program)
    variables.unlink()
    differing = {
        (host, role) for host in before for role in before[host] if before[host][role] != after[host][role]
    }
    assert differing == {("tokyo-control-0", "cache")}


def test_its_checks_are_found_by_the_verification(checkout: Checkout) -> None:
    ask = ("-m", "infra.verify.expectations", "--inventory", "inventories/rooms")
    expected = checkout.folder / "expectations.json"
    expected.write_text(checkout.run(sys.executable, *ask))
    features = {host["host"]: host["features"] for host in json.loads(expected.read_text())["hosts"]}
    assert {"cache", "ports", "beacon"} <= set(features["tokyo-control-0"])
    collect = ("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--hosts=ssh://tokyo-gpu-0")
    known = ("env", f"CAUSEWAY_EXPECTATIONS={expected}", sys.executable, *collect, "tests/verify/cache")
    assert "test_its_size_is_the_declared_one" in checkout.run(*known)


def test_its_kind_of_drift_travels_and_covers_its_role(checkout: Checkout) -> None:
    program = (
        "import json; from infra.drift.assembly import probe_source; from infra.drift.kinds import KINDS\n"
        "print(json.dumps(['beacon' in KINDS, 'def look_at_beacon' in probe_source(frozenset({'beacon'}))]))"
    )
    assert checkout.python(program) == [True, True]
    covered = checkout.causeway("drift", "--coverage")
    for role in DECLARED:
        assert re.search(rf"^{role}: (\d+) of \1 ", covered, re.MULTILINE), covered


def test_its_resource_is_asked_for_and_counted(checkout: Checkout) -> None:
    own = ("tests/components/test_beacon.py", "tests/components/test_cache.py")
    checkout.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *own)
    report = json.loads(checkout.causeway("plan", "Pulumi.rooms.yaml", "--json"))
    assert report["resources"]["beacons"] == 1
    assert report["resources"]["cache"] == 1, "the secret from a node"


def test_its_command_is_one_of_the_commands(checkout: Checkout) -> None:
    assert "say a colour" in checkout.causeway("--help")
    assert checkout.causeway("beacon", "red") == "the beacon shows red\n"
    assert "beacon" in checkout.causeway("--completion", "bash")


def test_its_tool_is_obtained_for_a_declaration_that_needs_it(checkout: Checkout) -> None:
    script = "ROOT=$PWD CACHE=/nowhere; . toolchain/setup.sh"
    script += '; begin_tool() { echo "$1 $3 $4"; }; begin_tools up "$@"'
    wanted = checkout.run("bash", "-euc", script, "bash", "rooms").splitlines()
    assert "lamp 1.2.3 /nowhere/lamp-1.2.3" in wanted
    assert not any(
        "lamp" in line for line in checkout.run("bash", "-euc", script, "bash", "local").splitlines()
    )
