#!/usr/bin/python3
"""Ansible module: RoCEv2 settings of a node's fabric interfaces, and a unit per interface that keeps them."""

from __future__ import annotations

import json
from typing import Any

from ansible.module_utils import causeway_roce_host as host
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_roce
short_description: Bring the fabric interfaces to their RoCEv2 settings, and keep them there
description:
  - Writes /etc/causeway/roce.json, applies it to every interface, and enables and starts
    causeway-roce@INTERFACE.service. What a device cannot do is reported as unsupported, never as changed.
  - Changes nothing at all when one of the interfaces carries SSH or the default route.
options:
  settings:
    description: The content of the file; needed unless I(restart).
    type: dict
  restart:
    description: Do nothing but start the keepers again, as their program and unit now say.
    type: bool
    default: false
"""
EXAMPLES = r"""
- name: Apply
  causeway_roce:
    settings: {interfaces: [{name: rail0, address: 10.0.0.0/31}], mtu_bytes: 9000}
"""
RETURN = r"""
states:
  description: State, interface, setting and reason of every setting.
  type: list
  returned: always
problems:
  description: What is missing or failed, one line each.
  type: list
  returned: always
refused:
  description: The interfaces that carry SSH or the default route.
  type: list
  returned: always
rdma_ports:
  description: Interface → its RDMA device and port, such as mlx5_0:1.
  type: dict
  returned: always
management_interface:
  description: The interface with the management address; empty where no interface has it.
  type: str
  returned: always
governs:
  description: The file, units and settings this call made true.
  type: list
  returned: always
"""

PROGRAM = "/usr/local/sbin/causeway-roce"


class Keepers:
    """The units of the interfaces: `of` maps an interface's name to its unit's."""

    def __init__(self, module: AnsibleModule, names: list[str]) -> None:
        self.module = module
        # A dash in a name has to be escaped, or it would stand for a slash.
        escape = ["systemd-escape", "--template=causeway-roce@.service"]
        self.of = {name: str(module.run_command([*escape, name], check_rc=True)[1]).strip() for name in names}

    def systemctl(self, *words: str) -> list[str]:
        """The lines `systemctl` prints; whether it succeeds is for the next look to tell."""
        return str(self.module.run_command(["systemctl", *words])[1]).splitlines()

    def bring(self, present: set[str]) -> list[str]:
        """Enable the units, start those whose interface is there, drop all others; what changed."""
        changes = []
        for unit in sorted(set(self.enabled()) - set(self.of.values())):
            changes.append(f"{unit} disabled")
            self.do("disable", "--now", unit)
        for name, unit in self.of.items():
            enabled = self.systemctl("is-enabled", unit) == ["enabled"]
            # Started without its device, it would wait for one until the job times out.
            started = name not in present or self.systemctl("is-active", unit) == ["active"]
            if not enabled or not started:
                changes.append(f"{unit} enabled" if not enabled else f"{unit} started")
                self.do("enable", *(["--now"] if name in present else []), unit)
        return changes

    def enabled(self) -> list[str]:
        """The instances that start with their devices."""
        lines = self.systemctl("list-unit-files", "--no-legend", "--state=enabled", "causeway-roce@*")
        return [line.split()[0] for line in lines if not line.startswith("causeway-roce@.service")]

    def do(self, *words: str) -> None:
        """Change something, unless in check mode."""
        if not self.module.check_mode:
            status, _, complaint = self.module.run_command(["systemctl", *words])
            if status:
                self.module.fail_json(msg=f"systemctl {' '.join(words)}: {complaint.strip()}")


def write_config(settings: dict[str, Any], dry_run: bool) -> bool:
    """Write the file where it differs; True when it does."""
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    try:
        if host.CONFIG_FILE.read_text() == text:
            return False
    except FileNotFoundError:
        pass
    if not dry_run:
        part = host.CONFIG_FILE.with_suffix(".part")
        part.write_text(text)
        part.chmod(0o644)
        part.replace(host.CONFIG_FILE)
    return True


def governed(units: list[str]) -> list[dict[str, Any]]:
    """What now holds on the node and shall stay so, for the record of the converge."""
    running = [{"kind": "unit", "key": unit} for unit in units]
    check = {"kind": "check", "key": "causeway-roce check", "how": {"argv": [PROGRAM, "check"]}}
    return [{"kind": "file", "key": str(host.CONFIG_FILE)}, *running, check]


def apply(module: AnsibleModule) -> None:
    """Everything, in the order in which a failure does the least harm; ends the module."""
    settings = module.params["settings"]
    names = host.names_of(settings)
    refused = sorted(host.carrying(settings["management_address"]) & set(names))
    if refused:
        reason = "carries SSH or the default route, and is left alone; nothing was changed"
        module.fail_json(msg=f"{', '.join(refused)} {reason}", refused=refused)
    changes = [str(host.CONFIG_FILE)] if write_config(settings, module.check_mode) else []
    states = host.bring_all(settings, dry_run=module.check_mode)
    changes += [f"{state.interface} {state.setting}" for state in states if state.changed]
    present = {name for name in names if (host.SYS_NET / name).is_dir()}
    keepers = Keepers(module, names)
    changes += keepers.bring(present)
    given_up = [name for name in host.changed_interfaces() if name not in names]
    changes += [f"{name} given back" for name in given_up]
    for state in [] if module.check_mode else host.restore_all(settings, given_up):
        if state.state != "restored":
            module.warn(f"{state}: it is declared no more, and stays as it is")
    result = {
        "changed": bool(changes),
        "changes": changes,
        "states": [
            {"interface": s.interface, "setting": s.setting, "state": s.state, "reason": s.reason}
            for s in states
        ],
        "problems": [str(state) for state in states if state.state in ("missing", "failed")],
        "refused": [],
        "rdma_ports": host.rdma_ports(names),
        "management_interface": next(iter(host.having(settings["management_address"])), ""),
        "governs": governed([unit for name, unit in keepers.of.items() if name in present]),
    }
    if result["problems"]:
        module.fail_json(msg="; ".join(result["problems"]) + "; everything else is set", **result)
    module.exit_json(**result)


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict"},
            "restart": {"type": "bool", "default": False},
        },
        required_if=[("restart", False, ["settings"])],
        supports_check_mode=True,
    )
    if module.params["restart"]:
        keepers = Keepers(module, [])
        keepers.do("daemon-reload")
        keepers.do("try-restart", "causeway-roce@*.service")
        module.exit_json(changed=True, governs=[])
    try:
        apply(module)
    except (OSError, KeyError, ValueError, host.RefusedError) as error:
        module.fail_json(msg=f"the settings cannot be applied: {error}")


if __name__ == "__main__":
    main()
