"""What a stack has left on this machine, and how it goes: for `down`, and for a run that died.

Everything is found by what it says of itself (labels, notes, aliases, command lines), never by a prefix of
its name: the stack `a` must not sweep the stack `a-b`.
"""

import json
import shutil

from infra.process import run
from infra.providers.local import containers, daemons, names, netns, network, vms


def leftovers(stack: str) -> list[str]:
    """What still stands of a stack, one line each; empty when nothing does."""
    folder = names.stack_dir(stack)
    return [
        *[f"container {name}" for name in _containers(stack)],
        *[f"virtual machine {name}" for name in vms.standing(stack)],
        *[f"process {pid} of a WAN link" for pid in daemons.processes(folder)],
        *[f"network namespace {name}" for name in netns.owned(stack)],
        *[f"uplink {names.host_uplink(stack, region)} of {region}" for region in network.uplinks(stack)],
        *([f"folder {folder}"] if folder.exists() else []),
    ]


def sweep(stack: str) -> list[str]:
    """Remove all that stands of a stack, and of no other; returns what it was.

    With the last stack the host's nft table goes, too. Nodes lose their data: this is the end of a stack.
    """
    found = leftovers(stack)
    made = _containers(stack)
    if made:
        containers.discard(*made)
    vms.remove_all(stack)
    daemons.stop_all(names.stack_dir(stack))
    regions = set(network.uplinks(stack))
    for namespace, note in netns.owned(stack).items():
        if note.get("kind") == "node":
            containers.unwire(stack, note["node"])
        elif note.get("kind") == "router":
            regions.add(note["region"])
        else:  # a link's; or one without a note, in which nothing is
            with netns.locked():
                netns.delete(stack, namespace)
    for region in sorted(regions):
        network.remove(stack, region)
    shutil.rmtree(names.stack_dir(stack), ignore_errors=True)
    return found


def _containers(stack: str) -> list[str]:
    answer = run(
        ["podman", "ps", "--all", "--format=json", f"--filter=label={names.LABEL}stack={stack}"],
        hint="sweeping needs a working podman",
    )
    return sorted(record["Names"][0] for record in json.loads(answer or "[]"))
