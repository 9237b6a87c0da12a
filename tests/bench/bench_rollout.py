"""What one change costs: all tasks of the roles that are due, or those that it concerns; judges nothing.

Usage: ./run exec python tests/bench/bench_rollout.py [--gpu-nodes N] [--declaration FILE]
    [--change CHANGE]… [--json FILE]
The default stack (or another, with N GPU nodes in its first region) is stood up in a checkout of its own,
its first WAN link as a VPN, whose key can be rotated. Each change is rolled out twice: with
`whole_roles: true`, then, once it was taken back, without it.
"""

import argparse
import json
import re
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from infra import ROOT
from tests.integration.checkout import Checkout, commit, new_checkout

Cluster = dict[str, Any]
WAYS = ("whole roles", "what changed")


def declared(checkout: Checkout, file: Path, gpu_nodes: int | None) -> Cluster:
    """A declaration of local nodes, in the checkout's own ranges."""
    cluster: Cluster = YAML(typ="safe").load(file.read_text())["config"]["causeway:cluster"]
    for number, region in enumerate(cluster["regions"]):
        region["cidr"] = checkout.cidr(number)
    if gpu_nodes is not None:
        _gpu_pool(cluster)["count"] = gpu_nodes
    cluster["wan_links"][0]["kind"] = "vpn"
    return cluster


def _gpu_pool(cluster: Cluster) -> dict[str, Any]:
    return next(pool for pool in cluster["regions"][0]["pools"] if pool["role"] == "gpu")


def measured_up(checkout: Checkout, replaced: Sequence[str] = ()) -> dict[str, float]:
    """The figures of one `up`, and how many tasks ran on how many hosts in it.

    REPLACED: URNs of what is made anew in it.
    """
    began, cpu_s = time.time(), _children_cpu_s()
    if replaced:
        words = (word for urn in replaced for word in ("--replace", urn))
        checkout.run("exec", "pulumi", "up", "--yes", "--skip-preview", "--stack", checkout.stack, *words)
    else:
        checkout.up()
    figures = {"up_s": time.time() - began, "controller_cpu_s": _children_cpu_s() - cpu_s}
    recaps = "".join(log.partition("PLAY RECAP")[2] for log in checkout.logs(began))
    figures["hosts"] = len(re.findall(r"\bok=\d+", recaps))
    figures["tasks"] = sum(map(int, re.findall(r"\bok=(\d+)", recaps)))
    return figures


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def commented(role: str, checkout: Checkout) -> Iterator[tuple[str, ...]]:
    """A role whose tasks have a comment more."""
    file = checkout.folder / "roles" / role / "tasks" / "main.yml"
    text = file.read_text()
    file.write_text(text + "# why\n")
    yield ()
    file.write_text(text)


@contextmanager
def changed(
    change: Callable[[Cluster], Any], checkout: Checkout, cluster: Cluster
) -> Iterator[tuple[str, ...]]:
    """A declaration with one change."""
    other = json.loads(json.dumps(cluster))
    change(other)
    checkout.declare(other)
    yield ()
    checkout.declare(cluster)


@contextmanager
def rotated(checkout: Checkout, _cluster: Cluster) -> Iterator[tuple[str, ...]]:
    """The URNs of a tunnel's keys."""
    words = ("exec", "pulumi", "stack", "--show-urns", "--stack", checkout.stack)
    urns = tuple(re.findall(r"urn:\S+wan:Link\$\S+:Secret::\S+", checkout.run(*words)))
    if not urns:
        raise SystemExit("the stack has no tunnel's key to rotate")
    yield urns


def zone(cluster: Cluster) -> None:
    """Another time zone in the first region."""
    cluster["regions"][0]["timezone"] = "Asia/Seoul"


def rate(cluster: Cluster) -> None:
    """Nine tenths of the first link's rate."""
    cluster["wan_links"][0]["bandwidth_mbps"] *= 0.9


def node(cluster: Cluster) -> None:
    """One GPU node more in the first region."""
    _gpu_pool(cluster)["count"] += 1


CHANGES: dict[str, Callable[[Checkout, Cluster], AbstractContextManager[Sequence[str]]]] = {
    "a comment in base": lambda checkout, _cluster: commented("base", checkout),
    "a comment in consul": lambda checkout, _cluster: commented("consul", checkout),
    "one region's time zone": partial(changed, zone),
    "a link's rate": partial(changed, rate),
    "a node more": partial(changed, node),
    "a tunnel's key": rotated,
}


def main() -> None:
    """Measure each change both ways, and print them side by side."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu-nodes", type=int, help="GPU nodes of the first region")
    parser.add_argument("--declaration", type=Path, default=ROOT / "Pulumi.local.yaml")
    parser.add_argument("--change", action="append", choices=CHANGES, help="only this one; several times")
    parser.add_argument("--json", type=Path, help="file for the figures")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, dict[str, float]]] = {}
    with new_checkout() as checkout:
        cluster = declared(checkout, arguments.declaration, arguments.gpu_nodes)
        whole = checkout.folder / "inventories" / checkout.stack / "group_vars" / "all" / "whole.yml"
        whole.parent.mkdir(parents=True)
        checkout.declare(cluster)
        commit(checkout.folder)
        figures["the first up"] = dict.fromkeys(WAYS, measured_up(checkout))
        figures["nothing"] = dict.fromkeys(WAYS, measured_up(checkout))
        for what in arguments.change or CHANGES:
            figures[what] = {}
            for way in WAYS:
                whole.write_text(f"whole_roles: {str(way == WAYS[0]).lower()}\n")
                with CHANGES[what](checkout, cluster) as replaced:
                    figures[what][way] = measured_up(checkout, replaced)
                checkout.up()
            report(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


def report(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    """One line for each change."""
    columns = ("up_s", "controller_cpu_s", "hosts", "tasks")
    print(f"{'':<24}" + "".join(f"{column:>26}" for column in columns))
    for what, ways in figures.items():
        cells = (" → ".join(f"{ways[way][column]:.0f}" for way in WAYS) for column in columns)
        print(f"{what:<24}" + "".join(f"{cell:>26}" for cell in cells))


if __name__ == "__main__":
    main()
