"""Ansible's sudo, which gets its password from where the declaration says, by way of no variable.

A variable would be printed: by `ansible-inventory`, by `debug`, by whoever looks at `hostvars`.

Ansible asks many hosts side by side, and a wrong password tried on all of them may lock an account. So before
it uses the password one host tries it alone, by ssh itself, and the others wait for what comes of it
(`infra.ground.sudo`, whose memory all processes of a run share). Most often `up` or `doctor` has done that.
Tasks that reach no host, as `set_fact`, have this plugin set up as well: nothing is tried for them.

Ansible loads this file in every run, and the declaration's models behind `infra.ground` take a third as long
to load as Ansible does. So they are loaded where a host's sudo asks for a password.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.become import sudo as plain

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.errors import CausewayError  # noqa: E402 - needs the path set above

if TYPE_CHECKING:
    from infra.ground.sudo import Become

DOCUMENTATION = f"""{plain.DOCUMENTATION.rstrip().replace("name: sudo", "name: causeway_sudo", 1)}
        causeway_sudo_source:
            description: Stack and source of the password, as the contract has it.
            type: string
            required: False
            vars:
              - name: causeway_sudo_source
        causeway_sudo_host:
            description: The host, as the stack's ssh_config has it.
            type: string
            required: False
            vars:
              - name: inventory_hostname
        causeway_sudo_user:
            description: Who logs in, for what is said of a refusal.
            type: string
            required: False
            vars:
              - name: ansible_user
"""


class BecomeModule(plain.BecomeModule):  # type: ignore[misc] # ansible has no types
    """Asks `infra.ground.sudo`; what somebody gives Ansible itself (`--ask-become-pass`) goes first.

    For Mitogen and in commands it is `sudo`, by the name that the class inherits.
    """

    _becoming: Become | None = None

    def set_options(self, task_keys: Any = None, var_options: Any = None, direct: Any = None) -> None:
        """As Ansible's, with the password where sudo asks for one; AnsibleError where that is not there."""
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        stack, _, source = str(self.get_option("causeway_sudo_source") or "").partition("/")
        if not source or self.get_option("become_pass"):
            return
        from infra.ground.sudo import Become  # as said at the top of this file

        host, user = (str(self.get_option(f"causeway_sudo_{what}") or "") for what in ("host", "user"))
        self._becoming = Become(stack, host, user, source)
        self._take(proven=False)

    def get_option(self, option: str, hostvars: Any = None, playcontext: Any = None) -> Any:
        """As Ansible's. Who says for which play it asks is about to use it: Mitogen, as it connects."""
        if option == "become_pass" and playcontext is not None:
            self._take(proven=True)
        return super().get_option(option, hostvars, playcontext)

    def build_become_command(self, cmd: str, shell: Any) -> str:
        """As Ansible's: the password is used next."""
        self._take(proven=True)
        return str(super().build_become_command(cmd, shell))

    def _take(self, *, proven: bool) -> None:
        """AnsibleError where the password is not known or was refused, also on another host meanwhile.

        PROVEN: a host has to have tried it; AnsibleConnectionFailure where this one does not answer.
        """
        if self._becoming is None:
            return
        try:
            if proven:
                prove(self._becoming)
            self.set_option("become_pass", self._becoming.ahead.removesuffix("\n"))
        except CausewayError as error:
            raise AnsibleError(": ".join(filter(None, (error.message, error.hint)))) from None


def prove(becoming: Become) -> None:
    """Have one host try the password, unless that is done. CausewayError where it was refused."""
    from infra.ground.login import by_ssh  # as said at the top of this file
    from infra.ground.sudo import TRIAL_LIMIT_S

    def ask(command: str, stdin: str) -> str:
        try:
            return by_ssh(becoming.stack, becoming.host, command, stdin=stdin, timeout_s=TRIAL_LIMIT_S)
        except CausewayError as error:
            raise AnsibleConnectionFailure(
                f"sudo's password was to be tried there: {error.message}"
            ) from None

    if complaint := becoming.prove(ask):
        raise CausewayError(becoming.in_words(complaint))
