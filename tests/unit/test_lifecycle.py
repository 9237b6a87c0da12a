"""Lifecycles behind Pulumi's dynamic provider: convergence, drift, plain errors, the end of the engine."""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import grpc  # type: ignore[import-untyped]  # its types are a package of their own
import pytest
from google.protobuf import struct_pb2  # type: ignore[import-untyped]  # likewise
from hypothesis import given
from hypothesis import strategies as st
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from infra.process import descendants
from infra.providers.lifecycle import (
    DRIFT,
    ENSURED,
    PROVIDER_KEY,
    ByName,
    Lifecycle,
    Observed,
    Properties,
)
from infra.providers.local.daemons import command_line
from tests.patience import wait_for

ROOT = Path(__file__).resolve().parents[2]
TARGET = f"{__name__}:Shelf"


class Shelf(Lifecycle):
    """Keeps what it is asked to in a dictionary that stands for the world."""

    outputs = ("made",)
    replace_on = ("place",)
    quiet = ("colour",)
    world: ClassVar[dict[str, Any]] = {}
    known: ClassVar[Properties] = {}

    def identity(self, inputs: Properties) -> str:
        return str(inputs["place"])

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        type(self).known = known
        self.world[inputs["place"]] = dict(inputs)
        return {"made": "yes"}

    def observe(self, properties: Properties) -> list[str] | Observed | None:
        found = self.world.get(properties["place"])
        if found is None:
            return None
        return [] if found["size"] == properties["size"] else [f"size is {found['size']}"]

    def remove(self, properties: Properties) -> None:
        del self.world[properties["place"]]


class Remembering(Shelf):
    def observe(self, properties: Properties) -> Observed:
        return Observed([f"{properties['place']} moved"], {"made": "elsewhere"})


@pytest.fixture
def provider() -> ByName:
    Shelf.world.clear()
    return ByName(TARGET)


INPUTS = {"place": "left", "size": 1, "made": None, DRIFT: None, PROVIDER_KEY: "pickled"}


def test_create_gives_the_declared_identity_and_clean_outputs(provider: ByName) -> None:
    made = provider.create(dict(INPUTS))
    assert made.id == "left"
    assert made.outs is not None
    assert made.outs.pop(ENSURED)
    assert made.outs == {"place": "left", "size": 1, "made": "yes", DRIFT: []}
    assert Shelf.world == {"left": {"place": "left", "size": 1}}, "outputs and pickles are no inputs"
    assert Shelf.known == {}


@given(st.permutations(["rail0", "rail1", "rail2"]), st.permutations(["gpu-0", "gpu-1"]))
def test_mappings_come_to_a_lifecycle_in_one_order(ports: list[str], names: list[str]) -> None:
    fabric = {name: dict.fromkeys(ports, "leaf") for name in names}
    Shelf.world.clear()
    ByName(TARGET).create(INPUTS | {"rows": [{"fabric": fabric}]})
    (seen,) = Shelf.world["left"]["rows"]
    assert list(seen["fabric"]) == ["gpu-0", "gpu-1"]
    assert {tuple(held) for held in seen["fabric"].values()} == {("rail0", "rail1", "rail2")}


def test_update_hands_over_what_was_known(provider: ByName) -> None:
    olds = provider.create(dict(INPUTS)).outs or {}
    provider.update("left", {**olds, PROVIDER_KEY: "pickled"}, INPUTS | {"size": 2})
    assert Shelf.world["left"]["size"] == 2
    assert Shelf.known["made"] == "yes"
    assert PROVIDER_KEY not in Shelf.known


def test_whatever_was_done_to_a_resource_shows_in_an_output_and_is_no_change_by_itself(
    provider: ByName,
) -> None:
    first = provider.create(dict(INPUTS)).outs or {}
    again = provider.update("left", first, dict(INPUTS)).outs or {}
    assert again[ENSURED] > first[ENSURED]
    assert provider.read("left", dict(again)).outs == again
    assert ENSURED not in (provider.read("left", dict(again)).inputs or {})
    assert not provider.diff("left", again, {"place": "left", "size": 1}).changes


def test_a_look_brings_outputs_up_to_date() -> None:
    provider = ByName(f"{__name__}:{Remembering.__name__}")
    read = provider.read("left", provider.create(dict(INPUTS)).outs or {})
    assert read.outs is not None
    assert (read.outs["made"], read.outs[DRIFT]) == ("elsewhere", ["left moved"])
    assert read.inputs == {"place": "left", "size": 1}


def test_diff_sees_changed_inputs_replacements_and_drift(provider: ByName) -> None:
    olds = provider.create(dict(INPUTS)).outs or {}
    news = {"place": "left", "size": 1}
    assert not provider.diff("left", olds, news).changes
    bigger = provider.diff("left", olds, news | {"size": 2})
    assert bigger.changes
    assert not bigger.replaces
    assert not provider.diff("left", olds, news | {"colour": "red"}).changes, "for what is made later on"
    moved = provider.diff("left", olds, news | {"place": "right"})
    assert moved.replaces == ["place"]
    assert moved.delete_before_replace, "two of the same name cannot stand at once"
    assert provider.diff("left", olds | {DRIFT: ["size is 9"]}, news).changes


def all_lifecycles() -> list[type[Lifecycle]]:
    """Every one of the code base, found by its source."""
    found: list[type[Lifecycle]] = []
    for path in sorted((ROOT / "infra").rglob("*.py")):
        if names := re.findall(r"^class (\w+)\(Lifecycle\)", path.read_text(), re.MULTILINE):
            module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            found += [getattr(module, name) for name in names]
    return found


LIFECYCLES = all_lifecycles()
VALUES = st.recursive(
    st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def declared_for(lifecycle: type[Lifecycle]) -> st.SearchStrategy[dict[str, Any]]:
    """Inputs of a resource: those that cannot change, and some others that may be left out."""
    always = dict.fromkeys(lifecycle.replace_on, VALUES)
    optional = dict.fromkeys(("wan_gateway", "leafs", "fabric", "hosts"), VALUES)
    return st.fixed_dictionaries(always, optional=optional)


def test_every_kind_of_resource_is_looked_at() -> None:
    assert {"NetworkLifecycle", "SecretLifecycle", "VerificationLifecycle"} <= {
        x.__name__ for x in LIFECYCLES
    }


@pytest.mark.parametrize("lifecycle", LIFECYCLES, ids=lambda lifecycle: lifecycle.__name__)
@given(data=st.data())
def test_an_input_that_comes_goes_or_changes_is_a_change(
    lifecycle: type[Lifecycle], data: st.DataObject
) -> None:
    """As Pulumi calls: what is None it does not send, and what stands has outputs that nobody declared."""
    provider = ByName(f"{lifecycle.__module__}:{lifecycle.__qualname__}")
    made = dict.fromkeys((*lifecycle.outputs, ENSURED), "made") | {DRIFT: [], PROVIDER_KEY: "pickled"}
    one, other = (data.draw(declared_for(lifecycle)) for _ in "12")
    found = provider.diff("id", one | made, other | {PROVIDER_KEY: "pickled of another version"})
    differing = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
    assert found.changes == bool(differing)
    assert set(found.replaces or ()) == differing & set(lifecycle.replace_on)
    for key in one:
        less = {name: value for name, value in one.items() if name != key}
        gone = provider.diff("id", one | made, less)
        assert gone.changes, key
        assert (gone.replaces == [key]) == (key in lifecycle.replace_on)


def test_read_keeps_the_declared_inputs_and_reports_the_drift(provider: ByName) -> None:
    state = provider.create(dict(INPUTS)).outs or {}
    assert provider.read("left", dict(state)).outs == state
    Shelf.world["left"]["size"] = 9
    found = provider.read("left", dict(state))
    assert (found.outs or {})[DRIFT] == ["size is 9"]
    assert found.inputs == {"place": "left", "size": 1}


def test_a_look_gives_an_older_state_the_outputs_that_others_read(provider: ByName) -> None:
    state = provider.create(dict(INPUTS)).outs or {}
    older = {key: value for key, value in state.items() if key != ENSURED}
    assert provider.read("left", older).outs == state | {ENSURED: ""}


def test_read_of_something_gone_says_so_to_pulumi(provider: ByName) -> None:
    state = provider.create(dict(INPUTS)).outs or {}
    provider.delete("left", dict(state))
    assert provider.read("left", dict(state)).id is None


@pytest.mark.parametrize(
    "target",
    ["infra.providers.local.resources:NodePoolLifecycle", "infra.components.wave:ConfigurationLifecycle"],
)
def test_the_state_holds_a_name_and_no_code(target: str) -> None:
    pickled = serialize_provider(ByName(target))
    assert len(pickled) < 400, "Pulumi keeps this once per resource"
    assert serialize_provider(ByName(target)) == pickled, "a preview would show a change"


WRITTEN = (
    *(f"infra.handoff.resources:{kind}Lifecycle" for kind in ("SshKey", "Inventory", "Configuration")),
    "infra.handoff.resources:VerificationLifecycle",
    "infra.handoff.secrets:SecretLifecycle",
    "infra.handoff.switches:SwitchFilesLifecycle",
    "infra.providers.existing.resources:ExistingPoolLifecycle",
    *(f"infra.providers.local.resources:{kind}Lifecycle" for kind in ("Machine", "Network", "NodePool")),
    "infra.providers.local.resources:WanLinkLifecycle",
)
"""What stands in the states of stacks that version 7ec3ff2 made."""


@pytest.mark.parametrize("written", WRITTEN)
def test_a_name_in_an_older_state_leads_to_the_lifecycle_of_today(written: str) -> None:
    found, _inputs = ByName(written)._open({})
    assert isinstance(found, Lifecycle)
    assert type(found).__name__ == written.partition(":")[2]


FAILING = '''
"""Lifecycles that fail, for a provider process of their own."""
import pexpect
from infra.errors import CausewayError
from infra.providers.lifecycle import Lifecycle

class Fails(Lifecycle):
    def identity(self, inputs):
        return "it"
    def ensure(self, inputs, known):
        if inputs["plain"]:
            raise CausewayError("the cable is not plugged in", "plug it in")
        raise KeyError("oops")
    def remove(self, properties):
        raise CausewayError("it does not let go", "pull harder")

class Forks(Fails):
    def ensure(self, inputs, known):
        ended = []
        for _ in range(60):
            child = pexpect.spawn("true", ignore_sighup=True)
            child.expect(pexpect.EOF)
            child.close()
            ended.append(child.exitstatus)
        return {"ended": ended}
'''


@pytest.fixture
def server(tmp_path: Path) -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    """Pulumi's real provider process, as the engine starts it."""
    (tmp_path / "failing.py").write_text(FAILING)
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PULUMI_PROJECT": "causeway"}
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "pulumi.dynamic"], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process, grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}") as channel:
        stub = provider_pb2_grpc.ResourceProviderStub(channel)
        stub.Configure(provider_pb2.ConfigureRequest())
        yield stub
        process.kill()


def told(call: Any, request: Any) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call(request)
    return str(caught.value.details())


def properties(lifecycle: str = "Fails", **values: Any) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update({**values, PROVIDER_KEY: serialize_provider(ByName(f"failing:{lifecycle}"))})
    return made


def test_what_a_provider_starts_by_fork_lives(server: provider_pb2_grpc.ResourceProviderStub) -> None:
    """As ansible-runner starts Ansible. `./run` sets what keeps gRPC from crashing it."""
    request = provider_pb2.CreateRequest(urn="urn:pulumi:s::p::t::n", properties=properties("Forks"))
    assert set(server.Create(request).properties["ended"]) == {0}, "None: a signal ended it"


def test_an_error_for_the_user_comes_without_a_traceback_and_a_bug_with_one(
    server: provider_pb2_grpc.ResourceProviderStub,
) -> None:
    urn = "urn:pulumi:s::p::t::n"
    plain = provider_pb2.CreateRequest(urn=urn, properties=properties(plain=True))
    bug = provider_pb2.CreateRequest(urn=urn, properties=properties(plain=False))
    for _ in range(2):  # one must not change how the other is told
        message = told(server.Create, plain)
        assert message.strip() == "causeway: the cable is not plugged in\n  → plug it in"
        assert 'failing.py", line' in told(server.Create, bug)
    gone = provider_pb2.DeleteRequest(id="it", urn=urn, properties=properties(plain=True))
    assert "File" not in told(server.Delete, gone)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A program that is called `pulumi`: a shell by its real nature."""
    path = tmp_path / "pulumi"
    shutil.copy2(shutil.which("bash") or "/bin/bash", path)
    return path


PROVIDER = """
import subprocess, time
from infra.providers import lifecycle
lifecycle._die_with_engine()
child = subprocess.Popen(["sh", "-c", "sleep 300; true"])
print(lifecycle._engine_pid(), flush=True)
time.sleep(300)
"""


def test_a_provider_ends_with_its_engine_and_takes_its_children_along(engine: Path, tmp_path: Path) -> None:
    script = tmp_path / "provider.py"
    script.write_text(textwrap.dedent(PROVIDER))
    # As Pulumi starts them: each below a shell, with the engine's address; one of the two is never used.
    address = f"127.0.0.1:{os.getpid()}"
    idle = "import time; time.sleep(300)"
    command = f"sh -c '{sys.executable} -c \"{idle}\" {address}; true' & "
    command += f"sh -c '{sys.executable} {script} {address}; true'; true"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [engine, "-c", command], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid, "the nearest pulumi above is the engine"
        # Two shells, two providers, one's shell and its sleep. The last may only be about to start.
        wait_for(lambda: len(descendants(process.pid)) == 6, "six processes below the engine")
        started = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda: not any(command_line(pid) for pid in started), "their end")


def test_nothing_is_watched_where_no_engine_runs_above() -> None:
    code = (
        "from infra.providers import lifecycle as l; l._die_with_engine(); print(l._engine_pid(), l._watch)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "None []\n", done.stderr


AT_ONCE = """
import sys, threading
from infra.providers.lifecycle import ByName
sys.setswitchinterval(1e-5)
start, found = threading.Barrier(len(sys.argv) - 1), []
def open_one(target):
    start.wait()
    found.append(ByName(target)._open({})[0])
threads = [threading.Thread(target=open_one, args=[target]) for target in sys.argv[1:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(len(found) != len(threads))
"""


@pytest.mark.parametrize("first", ["wave:ConfigurationLifecycle", "access_key:SshKeyLifecycle"])
def test_a_provider_that_is_asked_for_several_resources_at_once_finds_all(first: str) -> None:
    """Their modules import each other, and a thread may get a half-made one."""
    targets = [f"infra.components.{one}" for one in (first, "departures:DepartureLifecycle")]
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, *targets],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
