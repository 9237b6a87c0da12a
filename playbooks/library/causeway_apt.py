#!/usr/bin/python3
"""Ansible module: whether packages are there, as dpkg's and apt's own files say."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_prior import packages

DOCUMENTATION = r"""
---
module: causeway_apt
short_description: Look whether packages are there
description:
  - M(ansible.builtin.apt) has apt work out all that could be installed before it finds that nothing is to be
    done, and marks the packages as asked for once more: a fifth of a second of CPU for each role at each
    converge. The action of the same name asks this first.
  - Says no where it is not sure.
options:
  name:
    description: The packages, as C(name) or C(name=version).
    type: list
    elements: str
    required: true
"""
EXAMPLES = r"""
- name: Look for them
  causeway_apt:
    name: [chrony, locales]
"""
RETURN = r"""
there:
  description: Whether all are installed, in these versions, and none only because another needs it.
  type: bool
  returned: always
"""
UPDATES = "/var/lib/dpkg/updates"
"""What dpkg has yet to write into its status."""
FOREIGN = "/var/lib/dpkg/arch"
"""There where packages of other architectures may be; one of these is not the one that is meant."""


def are_there(names: list[str]) -> bool:
    """Whether all of them are there, and each was asked for."""
    if os.path.exists(FOREIGN) or os.listdir(UPDATES):
        return False
    known = packages()
    for asked in names:
        name, _, version = asked.partition("=")
        if name not in known or known[name]["auto"] or version not in ("", known[name]["version"]):
            return False
    return True


def main() -> None:
    """Say whether they are there."""
    options: dict[str, Any] = {"name": {"type": "list", "elements": "str", "required": True}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    module.exit_json(changed=False, there=are_there(module.params["name"]))


if __name__ == "__main__":
    main()
