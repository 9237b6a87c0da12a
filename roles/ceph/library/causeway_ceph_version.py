#!/usr/bin/python3
"""Ansible module: which of Ceph's packages are to be installed, in which exact versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.causeway_version import is_of, numbers

DOCUMENTATION = r"""
---
module: causeway_ceph_version
short_description: Find the packages of Ceph's declared version
description:
  - Changes nothing but what a killed installation has left half done. Refuses a version that is older than
    the installed one, one that is more than two releases ahead of it, and one that no source has. Without a
    version it is the packages' names, in whatever version.
options:
  packages:
    description: Names of the packages that are to be installed.
    type: list
    elements: str
    required: true
  version:
    description: How their version begins, without the epoch; empty for any.
    type: str
    default: ""
"""
EXAMPLES = r"""
- name: Find the packages
  causeway_ceph_version:
    packages: [ceph-osd]
    version: 18.2.7
"""
RETURN = r"""
packages:
  description: What is to be installed; with a version all that is installed of Ceph's among it.
  type: list
  returned: always
behind:
  description: Whether any of it is installed in another version than the chosen one.
  type: bool
  returned: always
"""
SOURCE = "ceph"
"""Debian's source package: all that is built from it has one version, and asks for that of the others."""
RELEASES = 2
"""How many an upgrade may go ahead (docs.ceph.com, "Ceph Releases (general)": from the last two)."""
INTERRUPTED = Path("/var/lib/dpkg/updates")
"""Where dpkg leaves what it was at when it was killed; until that is done it installs nothing."""
LIBRARY = "librados2"
"""What every part of Ceph needs."""


class RefusedError(Exception):
    """A version that cannot be installed, and why."""


def chosen(
    packages: Sequence[str],
    wanted: str,
    installed: Mapping[str, str],
    offered: Sequence[str],
    is_newer: Callable[[str, str], bool],
) -> list[str]:
    """What apt is to install: the packages, and with a version all that is installed, for it goes along.

    `installed`: name → version; `offered`: versions that sources have; `is_newer`: whether the first is newer
    than the second. What is there and fits stays. RefusedError where nothing does or Ceph cannot go there.
    """
    if not wanted:
        return list(packages)
    fitting = [version for version in (*installed.values(), *offered) if is_of(version, wanted)]
    for name, version in sorted(installed.items()):
        require_way(name, version, wanted, fitting, is_newer)
    if not fitting:
        there = ", ".join(dict.fromkeys(offered)) or "none"
        raise RefusedError(f"no source has Ceph {wanted} (there: {there})")
    # Parts of two versions do not go together: what is there stays where it is of one.
    versions = set(installed.values())
    if len(versions) == 1 and versions <= set(fitting):
        (version,) = versions
    else:
        version = reduce(lambda one, other: other if is_newer(other, one) else one, fitting)
    return [f"{name}={version}" for name in dict.fromkeys((*packages, *sorted(installed)))]


def require_way(
    name: str, version: str, wanted: str, fitting: Sequence[str], is_newer: Callable[[str, str], bool]
) -> None:
    """From an installed version to the declared one: forwards, and not too far at once."""
    ours, theirs = numbers(version), numbers(wanted)
    back = ours[: len(theirs)] > theirs or (
        not is_of(version, wanted) and bool(fitting) and all(is_newer(version, one) for one in fitting)
    )
    if back:
        raise RefusedError(
            f"{name} {version} is installed and Ceph {wanted} declared: what newer daemons have written "
            f"older ones cannot read. Declare {version}, or a newer one"
        )
    if ours and theirs and theirs[0] - ours[0] > RELEASES:
        raise RefusedError(
            f"{name} {version} is installed and Ceph {wanted} declared: Ceph is upgraded over {RELEASES} "
            f"releases at most. Declare one of {ours[0] + RELEASES} first"
        )


def installed_of(module: AnsibleModule) -> dict[str, str]:
    """Name → version of what is installed of Ceph's."""
    rows = "${source:Package}\t${Package}\t${Version}\t${db:Status-Status}\n"
    shown = run(module, "dpkg-query", "--show", "--showformat", rows)
    parts = (line.split("\t") for line in shown.splitlines())
    return {
        name: version
        for source, name, version, status in parts
        if source == SOURCE and status not in ("not-installed", "config-files")
    }


def finish_what_was_interrupted(module: AnsibleModule) -> bool:
    """Have dpkg configure what it has unpacked; whether there was anything."""
    shown = run(module, "dpkg-query", "--show", "--showformat", "${source:Package}\t${db:Status-Status}\n")
    half = {f"{SOURCE}\t{state}" for state in ("unpacked", "half-configured", "triggers-pending")}
    if not half.intersection(shown.splitlines()) and not any(INTERRUPTED.glob("*")):
        return False
    if not module.check_mode:
        run(module, "dpkg", "--force-confold", "--configure", "-a")
    return True


def offered_by(module: AnsibleModule) -> list[str]:
    """The versions that sources have, the newest first."""
    lines = run(module, "apt-cache", "madison", LIBRARY).splitlines()
    return [line.split("|")[1].strip() for line in lines]


def run(module: AnsibleModule, *argv: str) -> str:
    """What a program prints."""
    plain = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    _, printed, _ = module.run_command(list(argv), check_rc=True, environ_update=plain)
    return str(printed)


def main() -> None:
    """Entry point of the module."""
    arguments = {
        "packages": {"type": "list", "elements": "str", "required": True},
        "version": {"type": "str", "default": ""},
    }
    module = AnsibleModule(argument_spec=arguments, supports_check_mode=True)
    packages, wanted = module.params["packages"], module.params["version"]
    if not wanted:
        module.exit_json(changed=False, packages=packages, behind=False)

    def is_newer(one: str, other: str) -> bool:
        return not module.run_command(["dpkg", "--compare-versions", one, "gt", other])[0]

    finished = finish_what_was_interrupted(module)
    installed, offered = installed_of(module), offered_by(module)
    if not any(is_of(version, wanted) for version in (*installed.values(), *offered)):
        run(module, "apt-get", "--quiet", "-o", "DPkg::Lock::Timeout=300", "update")
        offered = offered_by(module)
    try:
        found = chosen(packages, wanted, installed, offered, is_newer)
    except RefusedError as error:
        module.fail_json(msg=str(error))
    exact = dict(one.split("=", 1) for one in found)
    behind = any(exact[name] != version for name, version in installed.items())
    module.exit_json(changed=finished, packages=list(exact), behind=behind)


if __name__ == "__main__":
    main()
