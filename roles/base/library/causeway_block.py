#!/usr/bin/python3
"""Ansible module: keeps a block of lines in a file of somebody's."""

from __future__ import annotations

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_block import with_block
from ansible.module_utils.causeway_node import replace

DOCUMENTATION = r"""
---
module: causeway_block
short_description: Keep a block of lines in a file of somebody's
description:
  - Writes the lines between two marks, at the end of the file or where the block stands already. The rest of
    the file stays as it is, byte for byte, as do its owner and mode.
  - The file is written whole or not at all, but for one that is mounted.
options:
  path:
    description: The file; it is made where there is none.
    type: path
    required: true
  lines:
    description: What stands in the block.
    type: list
    elements: str
    required: true
"""
EXAMPLES = r"""
- name: Write a block into the hosts file
  causeway_block:
    path: /etc/hosts
    lines: [10.81.16.0 tokyo-control-0]
"""
RETURN = r"""
governs:
  description: The block, for the record of the converge.
  type: list
  returned: always
"""


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "lines": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    path, lines = module.params["path"], module.params["lines"]
    file = Path(os.path.realpath(path))
    try:
        before = file.read_bytes() if file.exists() else b""
        after = with_block(before, [line.encode() for line in lines])
        if after != before and not module.check_mode:
            replace(file, after)
            if not before:
                file.chmod(0o644)
    except OSError as error:
        module.fail_json(msg=f"{path} cannot be written: {error.strerror}")
    shown = [text.decode(errors="replace") for text in (before, after)]
    module.exit_json(
        changed=after != before,
        diff={"before": shown[0], "after": shown[1], "before_header": path, "after_header": path},
        governs=[{"kind": "managed_block", "key": path, "want": {"lines": lines}}],
    )


if __name__ == "__main__":
    main()
