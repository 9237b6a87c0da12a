"""Action plugin: keeps a secret that a service made on a node, beside the stack's others."""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.files import write_private  # noqa: E402 - needs the path set above

DOCUMENTATION = """
module: causeway_keep_secret
short_description: Keep a secret that a node has made
description:
  - Reads a file of the node and writes it on the controller, 0600 from its first byte.
  - Nothing of it is in the result.
  - Nothing on the node changes. In check mode nothing is written, and the node's may be missing.
options:
  src: {description: The file on the node, type: path, required: true}
  dest: {description: The file on the controller, type: path, required: true}
"""


class ActionModule(ActionBase):  # type: ignore[misc] # ansible has no types
    """Slurps, compares and writes."""

    _VALID_ARGS = frozenset(("src", "dest"))

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Whether the controller's file changed."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        source, target = (self._task.args.get(name) for name in ("src", "dest"))
        if not source or not target:
            raise AnsibleActionFail("src and dest are needed: the node's file, and the controller's")
        read = self._execute_module("ansible.builtin.slurp", {"src": source}, task_vars=task_vars)
        if read.get("failed"):
            if self._task.check_mode:  # on a node that is new: what makes it has not run either
                return result | {"changed": True}
            raise AnsibleActionFail(
                f"{source} cannot be read on the node: {read.get('msg', 'no reason given')}"
            )
        try:
            text, path = base64.b64decode(read["content"]).decode(), Path(target)
        except UnicodeDecodeError:
            raise AnsibleActionFail(f"{source} is no text: keep it as base64") from None
        changed = not path.exists() or path.read_text(errors="replace") != text
        if changed and not self._task.check_mode:
            write_private(path, text)
        return result | {"changed": changed}
