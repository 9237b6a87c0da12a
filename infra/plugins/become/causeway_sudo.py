"""Ansible's sudo, which gets its password from where the declaration says, by way of no variable.

A variable would be printed: by `ansible-inventory`, by `debug`, by whoever looks at `hostvars`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.become import sudo as plain

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.errors import CausewayError  # noqa: E402 - needs the path set above
from infra.ground.sudo import password  # noqa: E402 - likewise

DOCUMENTATION = f"""{plain.DOCUMENTATION.rstrip().replace("name: sudo", "name: causeway_sudo", 1)}
        causeway_sudo_source:
            description: Stack and source of the password, as the contract has it.
            type: string
            required: False
            vars:
              - name: causeway_sudo_source
"""


class BecomeModule(plain.BecomeModule):  # type: ignore[misc] # ansible has no types
    """Asks `infra.ground.sudo`; what somebody gives Ansible itself (`--ask-become-pass`) goes first.

    For Mitogen and in commands it is `sudo`, by the name that the class inherits.
    """

    def set_options(self, task_keys: Any = None, var_options: Any = None, direct: Any = None) -> None:
        """As Ansible's, with the password where sudo asks for one. AnsibleError where that is not there."""
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        stack, _, source = str(self.get_option("causeway_sudo_source") or "").partition("/")
        if not source or self.get_option("become_pass"):
            return
        try:
            self.set_option("become_pass", password(stack, source))
        except CausewayError as error:
            raise AnsibleError(f"{error.message}: {error.hint}") from None
