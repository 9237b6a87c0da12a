"""Removes the nodes that any run of a scenario left: `python -m tests.molecule.nodes`, as Molecule does."""

import os
import subprocess
from collections.abc import Mapping

TRIES = 4
"""A container may end by itself just as podman is about to kill it, which podman takes for an error."""
LIMIT_S = 300
"""For what takes seconds: the machine may do much else."""


def remove(env: Mapping[str, str]) -> None:
    """Remove the containers of the scenario that ENV names. CalledProcessError where one stays."""
    label = f"label=causeway.molecule={env['MOLECULE_EPHEMERAL_DIRECTORY']}"
    ask = ["podman", "ps", "--all", "--quiet", "--filter", label]
    for attempt in range(TRIES):
        found = subprocess.check_output(ask, env=env, text=True, timeout=LIMIT_S).split()
        if not found:
            return
        words = ["podman", "rm", "--force", "--ignore", "--time", "0", "--volumes", *found]
        is_last = attempt == TRIES - 1
        done = subprocess.run(words, env=env, check=is_last, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        if done.returncode == 0:
            return


if __name__ == "__main__":
    remove(os.environ)
