#!/usr/bin/python3
"""Ansible module: keeps what a node was before roles that have not been there."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_paths import kept_at
from ansible.module_utils.causeway_prior import (
    KEPT,
    LARGEST_BYTES,
    MOST_BYTES,
    RECORD,
    RUNS,
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
  services:
    description: >-
      Role → patterns of services that may be somebody's. Where one runs before its role does, or before the
      role is told to set it up as well, it fails, and has kept nothing.
    type: dict
    default: {}
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


def recorded() -> dict[str, set[str]]:
    """Role that has run here → the keys of what it governs."""
    try:
        roles = json.loads(RECORD.read_text())["roles"]
        return {role: {entry["key"] for entry in part.get("entries", ())} for role, part in roles.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def asked_later(
    index: Index, roles: Iterable[str], services: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Role that has been here → patterns for which nobody asked yet: it sets up more than it did."""
    found = {
        role: [each for each in services.get(role, ()) if each not in index.asked.get(role, services[role])]
        for role in roles
        if role in index.roles
    }
    return {role: patterns for role, patterns in found.items() if patterns}


def somebodys(
    roles: Iterable[str], services: Mapping[str, Iterable[str]], units: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Role → services that run, and that it would set up."""
    running = [name for name, (_enabled, active) in units.items() if active in RUNS]
    found = {
        role: sorted(name for name in running if any(fnmatch(name, each) for each in services.get(role, ())))
        for role in roles
    }
    return {role: names for role, names in found.items() if names}


def refusal(taken: Mapping[str, Sequence[str]]) -> str:
    """What somebody has to decide."""
    said = [
        f"{', '.join(names)} of somebody's runs, and role {role} would set it up anew"
        for role, names in taken.items()
    ]
    return (
        f"nothing was changed here: {'; '.join(said)}. Move it elsewhere, or have it taken over: "
        f"`take_over: [{', '.join(taken)}]` in the region's provider"
    )


def keep_contents(facts: dict[str, Any], archive: Path) -> None:
    """The files that roles may replace, place by place; the smallest first, should there be too much."""
    small = []
    for path, (kind, *_rest) in facts["paths"].items():
        place = kept_at(path, facts["kept"]) if kind == "file" else None
        if place is not None:
            try:
                small.append((place, os.lstat(path).st_size, path))
            except OSError:
                continue
    left = MOST_BYTES
    part = archive.with_name(f".{archive.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as handle:
        with tarfile.open(fileobj=handle, mode="w:gz", compresslevel=3) as tar:
            for _place, size, path in sorted(small):
                if size > min(left, LARGEST_BYTES):
                    continue
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
    options = {
        "roles": {"type": "list", "elements": "str", "required": True},
        "services": {"type": "dict", "default": {}},
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    index, had, services = Index(), recorded(), module.params["services"]
    # The node's own copy of the record may still have what has left: it comes with the end of a run.
    back = index.come_back(module.params["roles"], had)
    there = {role: None for role in had if role not in {*index.roles, *index.left, *back}}
    new = [role for role in module.params["roles"] if role not in index.roles and role not in there]
    later = asked_later(index, module.params["roles"], services)
    facts = look() if new or later else {}
    units = facts.get("units", {})
    governed = {key for keys in had.values() for key in keys}
    strange = {name: state for name, state in units.items() if name not in governed}
    if taken := somebodys(new, services, units) | somebodys(later, later, strange):
        module.fail_json(msg=refusal(taken))
    asked = index.asked | {role: list(services[role]) for role in module.params["roles"] if role in services}
    if (new or there or asked != index.asked) and not module.check_mode:
        index.roles.update(there)
        index.asked = asked
        if new:
            number = index.next()
            KEPT.mkdir(parents=True, exist_ok=True, mode=0o700)
            keep_contents(facts, KEPT / f"{number}.tar.gz")
            keep_facts(number, facts)
            index.roles.update(dict.fromkeys(new, number))
        index.save()
    module.exit_json(changed=False, looked=new)


if __name__ == "__main__":
    main()
