"""What happens on nodes anyway, and whether a scan takes it for drift; judges nothing.

Services and nodes start again, logs rotate, packages are updated, leases are renewed, links flap, Consul has
another leader, files get another time. One thing after the other on nodes by chance; after each a scan of the
stack is asked, and where it finds something, once more after a while: a service may still be starting.

Usage: ./run exec python tests/bench/bench_quiet.py [--stack STACK] [--minutes N] [--seed N]
A stack of this checkout, of containers, that stands and is clean.
"""

import argparse
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv4Network

from infra import ROOT
from infra.capabilities.wan.section import WanSection
from infra.ground.contract import load_contract
from infra.stack import contract_file
from tests.integration.checkout import Checkout, cut, said
from tests.integration.quiet import NUMBERS, ON_NODES, happens
from tests.seed import SEED

SETTLED_S = 60
FLAP_S = 4


def flapped(stack: Checkout, _node: str) -> None:
    """The link's line is dead for some seconds."""
    for link in load_contract(contract_file(stack.stack)).need(WanSection).links:
        with cut(stack, link):
            time.sleep(FLAP_S)


def rebooted(stack: Checkout, node: str) -> None:
    """The node starts anew; what the provider has to do for it, `up` does."""
    said("podman", "restart", f"cw-{stack.stack}-{node}")
    if failed := _told("up", stack.stack, "--no-measure"):
        raise RuntimeError(failed)


ELSEWHERE: dict[str, Callable[[Checkout, str], None]] = {"links flap": flapped, "a node reboots": rebooted}


def differences(stack: Checkout) -> str:
    """What a scan finds; empty where nothing differs."""
    return _told("exec", "causeway", "drift", stack.stack)


def _told(*words: str) -> str:
    """What a command of ours said, where it did not end well."""
    done = subprocess.run(
        ["./run", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )  # deadline: by hand
    return done.stdout + done.stderr if done.returncode else ""


def main() -> None:
    """Let things happen for a while, and say which of them a scan took for drift."""
    parser = argparse.ArgumentParser(description="What no scan is to take for drift.")
    parser.add_argument("--stack", default="local")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    stack = Checkout(ROOT, options.stack, IPv4Network("10.208.0.0/12"))
    nodes = sorted(load_contract(contract_file(options.stack)).hosts)
    chance, ends = random.Random(options.seed), time.monotonic() + options.minutes * 60  # noqa: S311
    happened, unmade, passing, lasting = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    while time.monotonic() < ends:
        what, node = chance.choice((*ON_NODES, *ELSEWHERE)), chance.choice(nodes)
        print(f"{time.strftime('%H:%M:%S')} {node}: {what}", flush=True)
        number = chance.randrange(NUMBERS)
        try:
            make = ELSEWHERE.get(what)
            said_of_it = make(stack, node) if make else happens(stack, what, node, number)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired, RuntimeError) as failed:
            unmade[what] += 1
            print(f"did not end well, and is not counted: {failed}", flush=True)
            continue
        print(said_of_it or "", flush=True)
        happened[what] += 1
        if not (found := differences(stack)):
            continue
        passing[what] += 1
        print(found, flush=True)
        until = time.monotonic() + SETTLED_S
        while found and time.monotonic() < until:
            time.sleep(5)
            found = differences(stack)
        if found:
            lasting[what] += 1
            print(f"a minute later as well: {found}", flush=True)
            _told("exec", "ansible-playbook", "playbooks/repair.yml", "-i", f"inventories/{stack.stack}")
    print(f"{happened.total()} events: {dict(happened)}")
    print(f"did not end well: {dict(unmade)}")
    print(f"taken for drift at once: {dict(passing)}")
    print(f"and for more than {SETTLED_S} s: {dict(lasting)}")


if __name__ == "__main__":
    main()
