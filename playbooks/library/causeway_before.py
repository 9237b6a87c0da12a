#!/usr/bin/python3
"""Ansible module: keeps what a node was before roles that have not been there."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_prior import (
    KEPT,
    KEPT_WHOLE,
    LARGEST_BYTES,
    MOST_BYTES,
    Index,
    keep_facts,
    look,
)

DOCUMENTATION = r"""
---
module: causeway_before
short_description: Keep what a node was before its roles
description:
  - Looks at the node once before a role first runs there. What it sees, and the content of what is small
    and lies where roles write, is kept under /var/lib/causeway/before, for root only;
    C(playbooks/leave.yml) gives it back.
  - Changes nothing else, and is no change to a role.
options:
  roles:
    description: The roles that are about to run.
    type: list
    elements: str
    required: true
"""
EXAMPLES = r"""
- name: Keep what was there before
  causeway_before:
    roles: [base, consul]
"""
RETURN = r"""
looked:
  description: The roles for which the node was looked at.
  type: list
  returned: always
"""
MANIFEST = Path("/var/lib/causeway/manifest.json")


def recorded() -> set[str]:
    """Roles that ran before there was such a look: nobody knows what was before them."""
    try:
        return set(json.loads(MANIFEST.read_text())["roles"])
    except (OSError, ValueError, KeyError):
        return set()


def keep_contents(facts: dict[str, Any], archive: Path) -> None:
    """The files that roles may replace; the smallest first, should there be too much of them."""
    small = []
    for path, (kind, *_rest) in facts["paths"].items():
        if kind == "file" and path.startswith(KEPT_WHOLE):
            try:
                small.append((os.lstat(path).st_size, path))
            except OSError:
                continue
    left = MOST_BYTES
    part = archive.with_name(f".{archive.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        with tarfile.open(fileobj=handle, mode="w:gz", compresslevel=3) as tar:
            for size, path in sorted(small):
                if size > min(left, LARGEST_BYTES):
                    break
                try:
                    tar.add(path, recursive=False)
                except OSError:
                    continue
                left -= size
        handle.flush()
        os.fsync(handle.fileno())
    part.replace(archive)


def main() -> None:
    """Look where a role is new."""
    options = {"roles": {"type": "list", "elements": "str", "required": True}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    index = Index()
    there = {role: None for role in recorded() if role not in index.roles}
    new = [role for role in module.params["roles"] if role not in index.roles and role not in there]
    if (new or there) and not module.check_mode:
        index.roles.update(there)
        if new:
            number = index.next()
            KEPT.mkdir(parents=True, exist_ok=True, mode=0o700)
            facts = look()
            keep_contents(facts, KEPT / f"{number}.tar.gz")
            keep_facts(number, facts)
            index.roles.update(dict.fromkeys(new, number))
        index.save()
    module.exit_json(changed=False, looked=new)


if __name__ == "__main__":
    main()
