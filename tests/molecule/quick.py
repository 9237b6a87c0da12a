"""Molecule without what costs time and proves nothing: some seconds of a core per scenario.

    python -m tests.molecule.quick test -s default

Ansible is not asked for its version before each playbook, and nodes are removed, before a scenario and after
it, without the start of a playbook.
"""

from molecule.provisioner.ansible import Ansible
from molecule.provisioner.ansible_playbook import AnsiblePlaybook
from molecule.shell import main

from tests.molecule import nodes

if __name__ == "__main__":
    # Ansible is there: ./run has brought it.
    AnsiblePlaybook._validate_backend = lambda *_: None  # type: ignore[method-assign]
    Ansible.destroy = lambda self: nodes.remove(self.env)  # type: ignore[method-assign]
    main(prog_name="molecule")
