"""Molecule that does not ask Ansible for its version before each playbook: a third of a second of a core.

python -m tests.molecule.quick test -s default
"""

from molecule.provisioner.ansible_playbook import AnsiblePlaybook
from molecule.shell import main

if __name__ == "__main__":
    # Ansible is there: ./run has brought it.
    AnsiblePlaybook._validate_backend = lambda *_: None  # type: ignore[method-assign]
    main(prog_name="molecule")
