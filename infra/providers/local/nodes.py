"""The nodes of a pool: containers or virtual machines, made, adopted, replaced and removed.

`reconcile` is the only way nodes come and go. It looks at what stands, by labels and notes, and changes what
differs, so it also finishes what a killed run has begun.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from infra.declaration import NodeKind
from infra.errors import CausewayError
from infra.providers.local import containers, vms
from infra.providers.local.node import FabricPort, Node, NodeState, Progress, misplugged

AT_ONCE = 4
"""Nodes worked on at the same time; a booting systemd keeps about half a core busy."""


class Engine(Protocol):
    """How nodes of one kind are made."""

    def records(self, stack: str, region: str, pool: str) -> dict[str, dict[str, Any]]:
        """What is known of each node that was made, by name."""

    def begun(self, stack: str, region: str, pool: str) -> set[str]:
        """The names of nodes of which something was made, if only half."""

    def standing(self, stack: str) -> list[str]:
        """The names of all nodes of a stack, also half-made ones."""

    def bring_up(self, node: Node, record: dict[str, Any] | None) -> None:
        """Adopt, start or make one node, and wait until it answers by SSH."""

    def state(self, name: str, record: dict[str, Any]) -> NodeState:
        """What a node is, from its record."""

    def remove(self, stack: str, name: str) -> None:
        """Remove a node with all that belongs to it; nothing happens when it is gone."""


ENGINES: Mapping[NodeKind, Engine] = {"container": containers, "vm": vms}


def reconcile(
    stack: str, region: str, pool: str, desired: Sequence[Node], progress: Progress
) -> list[NodeState]:
    """Leave exactly the desired nodes standing in this pool, reachable by SSH; returns them in order.

    Adopts nodes whose definition matches, starts stopped ones, makes others anew, removes surplus ones and
    those of another kind. The region's network must stand. Raises one CausewayError that names every node
    that failed; all others are finished by then.
    """
    for kind, engine in ENGINES.items():
        wanted = {node.name for node in desired if node.kind == kind}
        _remove(engine, stack, sorted(_all(engine, stack, region, pool) - wanted), progress)
    ready: list[str] = []
    named = {node.name: node for node in desired}
    records = {kind: engine.records(stack, region, pool) for kind, engine in ENGINES.items()}

    def work(name: str) -> None:
        node = named[name]
        ENGINES[node.kind].bring_up(node, records[node.kind].get(name))
        ready.append(name)
        progress(f"{name} is ready ({len(ready)} of {len(desired)} nodes of {region}/{pool})")

    again = "the other nodes stand; run it again to go on from there"
    _each(work, list(named), progress, f"nodes of the pool {region}/{pool} failed", again)
    states = inspect(stack, region, pool)
    return [states[node.name] for node in desired]


def inspect(stack: str, region: str, pool: str) -> dict[str, NodeState]:
    """The pool's nodes as they are now, by name; changes nothing."""
    return {
        name: engine.state(name, record)
        for engine in ENGINES.values()
        for name, record in engine.records(stack, region, pool).items()
    }


def standing(stack: str) -> set[str]:
    """The names of all nodes of a stack, whatever their pool."""
    return {name for engine in ENGINES.values() for name in engine.standing(stack)}


def remove(stack: str, names: Sequence[str], progress: Progress = lambda _: None) -> None:
    """Remove these nodes, whatever they are; it is no error where one is gone."""
    for engine in ENGINES.values():
        _remove(engine, stack, sorted({*names}.intersection(engine.standing(stack))), progress)


def remove_pool(stack: str, region: str, pool: str, progress: Progress = lambda _: None) -> None:
    """Remove every node of the pool, also half-made ones."""
    for engine in ENGINES.values():
        _remove(engine, stack, sorted(_all(engine, stack, region, pool)), progress)


def _all(engine: Engine, stack: str, region: str, pool: str) -> set[str]:
    return engine.begun(stack, region, pool) | set(engine.records(stack, region, pool))


def _remove(engine: Engine, stack: str, node_names: Sequence[str], progress: Progress) -> None:
    def work(name: str) -> None:
        engine.remove(stack, name)
        progress(f"{name} is removed")

    again = "the other ones are gone; run it again to go on from there"
    _each(work, node_names, progress, "nodes could not be removed", again)


def _each(
    work: Callable[[str], None], node_names: Sequence[str], progress: Progress, what: str, hint: str
) -> None:
    """Do all of it, several at once, then raise one CausewayError that names every node that failed."""
    failures: dict[str, str] = {}

    def one(name: str) -> None:
        try:
            work(name)
        except (CausewayError, OSError) as error:  # a full disk, no more processes
            failures[name] = error.message if isinstance(error, CausewayError) else str(error)
            progress(f"{name} failed: {failures[name]}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, node_names))
    if failures:
        said = "; ".join(f"{name}: {failures[name]}" for name in sorted(failures))
        raise CausewayError(f"{len(failures)} of {len(node_names)} {what}: {said}", hint)


__all__ = ["FabricPort", "Node", "NodeState", "inspect", "misplugged", "reconcile", "remove", "remove_pool"]
