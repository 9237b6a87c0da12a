"""Molecule without what costs time and proves nothing: some seconds of a core per scenario.

    python -m tests.molecule.quick test -s default

Ansible is not asked for its version before each playbook, and nodes are removed, before a scenario and after
it, as destroy.yml does, but without the start of a playbook.
"""

import subprocess

from molecule.provisioner.ansible import Ansible
from molecule.provisioner.ansible_playbook import AnsiblePlaybook
from molecule.shell import main

TRIES = 4
"""A container may end by itself just as podman is about to kill it, which podman takes for an error."""


def remove_nodes(provisioner: Ansible) -> None:
    """Remove the containers that any run of this scenario left."""
    env = provisioner.env
    label = f"label=causeway.molecule={env['MOLECULE_EPHEMERAL_DIRECTORY']}"
    for attempt in range(TRIES):
        found = subprocess.run(
            ["podman", "ps", "--all", "--quiet", "--filter", label],
            env=env, text=True, stdout=subprocess.PIPE, check=True,
        ).stdout.split()  # fmt: skip
        if not found:
            return
        words = ["podman", "rm", "--force", "--ignore", "--time", "0", "--volumes", *found]
        done = subprocess.run(words, env=env, check=attempt == TRIES - 1, stdout=subprocess.DEVNULL)
        if done.returncode == 0:
            return


if __name__ == "__main__":
    # Ansible is there: ./run has brought it.
    AnsiblePlaybook._validate_backend = lambda *_: None  # type: ignore[method-assign]
    Ansible.destroy = remove_nodes  # type: ignore[assignment, method-assign]
    main(prog_name="molecule")
