"""The bridge between Pulumi's dynamic providers and our own code.

Pulumi pickles a dynamic provider into the state and runs that copy at refresh and destroy. So the
pickled part here is one line, the dotted name of a `Lifecycle`; the code behind the name is always
today's. A lifecycle is convergent: `ensure` serves create and update alike and completes whatever an
earlier, killed run left half made; `observe` is what `pulumi refresh` sees.
"""

import contextlib
import os
import select
import signal
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pulumi
from pulumi import dynamic

from infra.errors import CausewayError
from infra.process import descendants, processes

Properties = Mapping[str, Any]
"""A resource's properties as Pulumi keeps them: JSON values under the names of inputs and outputs."""

PROVIDER_KEY = "__provider"
DRIFT = "drift"
"""Output of every resource: what `observe` found to differ. Not empty means that `up` will repair it."""
ENSURED = "ensured"
"""Output of every resource: when `ensure` was last called. What was verified of it is verified anew then."""
COMMON = (DRIFT, ENSURED)
_IMPORTING = threading.Lock()
"""Pulumi asks for several resources at once, each in a thread."""

MOVED: Mapping[str, str] = {
    "infra.handoff.resources:SshKeyLifecycle": "infra.components.access_key:SshKeyLifecycle",
    "infra.handoff.resources:InventoryLifecycle": "infra.components.inventory_files:InventoryLifecycle",
    "infra.handoff.resources:ConfigurationLifecycle": "infra.components.wave:ConfigurationLifecycle",
    "infra.handoff.resources:VerificationLifecycle": "infra.components.verification:VerificationLifecycle",
    "infra.handoff.secrets:SecretLifecycle": "infra.components.secret:SecretLifecycle",
    "infra.handoff.switches:SwitchFilesLifecycle": "infra.capabilities.fabric.resources:SwitchFilesLifecycle",
}
"""Dotted names in the states of older stacks → where the lifecycle is today. The keys stay as they are."""


@dataclass(frozen=True)
class Observed:
    """What a look found: sentences for people, and the outputs that it brings up to date."""

    drift: list[str]
    outputs: dict[str, Any]


class Lifecycle(ABC):
    """What one kind of resource does when Pulumi asks."""

    outputs: ClassVar[tuple[str, ...]] = ()
    """Properties that `ensure` adds to the inputs."""
    replace_on: ClassVar[tuple[str, ...]] = ()
    """Inputs that cannot change on a standing resource."""
    quiet: ClassVar[tuple[str, ...]] = ()
    """Inputs that are for what is made from now on: their change alone is no reason to do anything."""

    @abstractmethod
    def identity(self, inputs: Properties) -> str:
        """The resource's ID; the same for the same declaration, so that a killed create is adopted."""

    @abstractmethod
    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Make it so, from whatever is there. `known`: the last outputs, empty on create. Returns outputs."""

    def observe(self, properties: Properties) -> list[str] | Observed | None:
        """What differs from `properties` in reality, one sentence each; None when the resource is gone.

        The sentences are for people. What `ensure` has to know of a look is one of `outputs`.
        """
        return []

    @abstractmethod
    def remove(self, properties: Properties) -> None:
        """Take away what `ensure` made; not an error when it is gone already."""


class ByName(dynamic.ResourceProvider):
    """The provider that is pickled into the state: it finds the lifecycle by its dotted name."""

    serialize_as_secret_always = False  # a name is no secret, and a secret would hide every diff

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target

    def configure(self, req: dynamic.ConfigureRequest) -> None:
        """Called once in every provider process, before anything else is asked of it."""
        _die_with_engine()

    def create(self, props: dict[str, Any]) -> dynamic.CreateResult:
        """Ensure from nothing, or from what a killed run left."""
        lifecycle, inputs = self._open(props)
        return dynamic.CreateResult(lifecycle.identity(inputs), _ensure(lifecycle, inputs, {}))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.UpdateResult:
        """Ensure from what stands."""
        lifecycle, inputs = self._open(_news)
        return dynamic.UpdateResult(_ensure(lifecycle, inputs, _without_provider(_olds)))

    def read(self, id_: str, props: dict[str, Any]) -> dynamic.ReadResult:
        """Look at reality: the inputs stay as declared, the drift goes into the outputs."""
        lifecycle, properties = self._open(props)
        with _PlainErrors():
            seen = lifecycle.observe(properties)
        if seen is None:
            return dynamic.ReadResult(None, {})
        if not isinstance(seen, Observed):
            seen = Observed(seen, {})
        # An older version's state has none; to a preview, what is missing is not known, and would change.
        outputs = {ENSURED: "", **properties, **seen.outputs, DRIFT: seen.drift}
        return dynamic.ReadResult(id_, outputs, _inputs(lifecycle, properties))

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> dynamic.DiffResult:
        """Changed when an input differs from the last one or is gone, or when the last look found drift."""
        lifecycle, properties = self._open(_news)
        news, olds = _inputs(lifecycle, properties), _inputs(lifecycle, _without_provider(_olds))
        # Pulumi sends no input that is None: one that was there before is missing.
        compared = [key for key in {**olds, **news} if key not in lifecycle.quiet]
        changed = [key for key in compared if olds.get(key) != news.get(key)]
        replaces = [key for key in changed if key in lifecycle.replace_on]
        return dynamic.DiffResult(
            changes=bool(changed or _olds.get(DRIFT)),
            replaces=replaces,
            stables=[],
            delete_before_replace=True,
        )

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Take it away."""
        lifecycle, properties = self._open(_props)
        with _PlainErrors():
            lifecycle.remove(properties)

    def _open(self, props: dict[str, Any]) -> tuple[Lifecycle, dict[str, Any]]:
        module, _, name = MOVED.get(self.target, self.target).partition(":")
        # Of two threads that import modules of one package, one may get a half-made module.
        with _IMPORTING:
            lifecycle: Lifecycle = getattr(import_module(module), name)()
        return lifecycle, _in_order(_without_provider(props))


class Managed(dynamic.Resource):
    """A resource whose work is done by a lifecycle of ours. Subclasses annotate their outputs."""

    drift: pulumi.Output[list[str]]
    ensured: pulumi.Output[str]

    def __init__(
        self,
        lifecycle: type[Lifecycle],
        name: str,
        inputs: Mapping[str, pulumi.Input[Any]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        outputs = dict.fromkeys((*lifecycle.outputs, *COMMON))
        if taken := outputs.keys() & inputs.keys():
            raise ValueError(f"{name}: an output of every {lifecycle.__name__}, and no input: {taken}")
        target = f"{lifecycle.__module__}:{lifecycle.__qualname__}"
        # For `up --replace`, which does not ask `diff`: two of the same name cannot stand at once.
        in_order = pulumi.ResourceOptions(delete_before_replace=True)
        opts = pulumi.ResourceOptions.merge(opts, in_order)
        super().__init__(ByName(target), name, {**outputs, **inputs}, opts)


def _ensure(lifecycle: Lifecycle, inputs: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    inputs = _inputs(lifecycle, inputs)
    with _PlainErrors():
        made = lifecycle.ensure(inputs, known)
    return {**inputs, DRIFT: [], ENSURED: datetime.now(UTC).isoformat(), **made}


def _inputs(lifecycle: Lifecycle, properties: Properties) -> dict[str, Any]:
    return {key: value for key, value in properties.items() if key not in (*lifecycle.outputs, *COMMON)}


def _in_order(value: Any) -> Any:
    """Mappings by their keys: Pulumi hands them over in another order each time, and a machine whose network
    cards change places is shut down and started again."""
    if isinstance(value, dict):
        return {key: _in_order(value[key]) for key in sorted(value)}
    return [_in_order(item) for item in value] if isinstance(value, list) else value


def _without_provider(props: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in props.items() if key != PROVIDER_KEY}


class _PlainErrors:
    """Errors meant for the user reach them without a traceback; bugs keep theirs.

    Pulumi's provider server sends `traceback.format_exc()`, which honours `sys.tracebacklimit`.
    """

    def __enter__(self) -> None:
        """Nothing to prepare: another thread's error may be on its way to the user at this moment."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, CausewayError):
            sys.tracebacklimit = 0
            raise _Told(str(error)) from None
        if error:
            sys.tracebacklimit = 1000


class _Told(Exception):  # noqa: N818 - its name is what the user reads
    """A CausewayError on its way to the user: Python puts the class's name before the message."""

    __module__ = "builtins"


_Told.__qualname__ = "causeway"


_watch: list[threading.Thread] = []


def _die_with_engine() -> None:
    """End this provider process, and what it runs, when the engine that started it is gone.

    A `kill -9` of `pulumi up` leaves its provider behind, still configuring nodes while the next `up`
    already does the same.
    """
    engine = _engine_pid()
    if engine and not _watch:
        _watch.append(threading.Thread(target=_watch_engine, args=(engine,), daemon=True))
        _watch[0].start()


def _engine_pid() -> int | None:
    """The nearest ancestor that is a `pulumi`; a shell may stand between it and us."""
    parents = {pid: (parent, command) for pid, parent, command in processes()}
    pid = os.getpid()
    while pid in parents:
        pid, command = parents[pid][0], parents.get(parents[pid][0], (0, ""))[1]
        if command == "pulumi":
            return pid
    return None


def _watch_engine(engine: int) -> None:
    try:
        ended = os.pidfd_open(engine)
    except ProcessLookupError:
        pass
    else:
        select.select([ended], [], [])  # readable once the process has ended
    for pid in [*descendants(os.getpid()), *_idle_providers()]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    os._exit(1)


def _idle_providers() -> list[int]:
    """Other provider processes of our engine, and their shells, in which no code of ours ever runs.

    The engine gives all of them its address as the last argument.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_text(errors="replace").rstrip("\0").split("\0")
            if ":" in sys.argv[-1] and words[-1] == sys.argv[-1] and int(process.name) != os.getpid():
                found.append(int(process.name))
    return found
