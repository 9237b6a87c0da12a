#!/usr/bin/python3
"""Ansible module: TCP settings and WAN routes, as far as the kernel takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils import causeway_tcp as tcp
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_tcp_tuning
short_description: Set TCP sysctls and the congestion control of routes, as far as the kernel takes them
description:
  - Probes every setting first. What the kernel takes is set now and kept in /etc/sysctl.d and in the file of
    causeway-wan-routes.service; what it does not take is reported as unsupported, never as changed.
options:
  sysctls:
    description: Key → value.
    type: dict
    required: true
  routes:
    description: Networks and how traffic into them is sent.
    type: list
    elements: dict
    required: true
"""
EXAMPLES = r"""
- name: Tune
  causeway_tcp_tuning:
    sysctls: {net.ipv4.tcp_mtu_probing: 1}
    routes: [{cidr: 10.82.0.0/16, congestion_control: bbr}]
"""
RETURN = r"""
effective:
  description: What is in force.
  type: list
  returned: always
unsupported:
  description: What this kernel does not take, and why.
  type: list
  returned: always
devices:
  description: The interfaces by which traffic to other regions leaves.
  type: list
  returned: always
governs:
  description: The files, sysctls and routes this call made true.
  type: list
  returned: always
"""


@dataclass
class Outcome:
    """What happened, by setting."""

    dry_run: bool
    changed: list[str] = field(default_factory=list)
    effective: list[str] = field(default_factory=list)
    unsupported: list[dict[str, str]] = field(default_factory=list)

    def attempt(self, name: str, action: Callable[[], bool]) -> None:
        """Run one setting's action and file its result under the right word."""
        try:
            if action():
                self.changed.append(name)
            self.effective.append(name)
        except tcp.RefusedError as refused:
            self.unsupported.append({"name": name, "reason": str(refused)})


def sysctl_action(key: str, value: str, dry_run: bool) -> Callable[[], bool]:
    """Probe one sysctl, set it when it differs; True when it did."""

    def action() -> bool:
        tcp.probe_sysctl(key, value)
        if tcp.sysctl_value(key) == value:
            return False
        if not dry_run:
            tcp.set_sysctl(key, value)
        return True

    return action


def route_action(route: dict[str, Any], dry_run: bool) -> Callable[[], bool]:
    """Bring one WAN route about; True when it changed."""
    return lambda: tcp.apply_route(route, dry_run)


def obsolete_routes(routes: list[dict[str, Any]]) -> list[str]:
    """The networks of the last run's routes that are not wanted any more."""
    try:
        before = {route["cidr"] for route in json.loads(tcp.ROUTES_FILE.read_text())}
    except (FileNotFoundError, ValueError):
        return []
    return sorted(before - {route["cidr"] for route in routes})


def devices(routes: list[dict[str, Any]]) -> list[str]:
    """The interfaces by which traffic to other regions leaves, as far as there is a way."""
    base = [route for route in tcp.main_table() if not tcp.is_ours(route)]
    found = set()
    for route in routes:
        with suppress(tcp.RefusedError):
            found.add(str(tcp.next_hop(route, base)["dev"]))
    return sorted(found)


def persist(outcome: Outcome, sysctls: dict[str, str], routes: list[dict[str, Any]]) -> None:
    """Write what a reboot and the service need, and the fact that tells what is effective."""
    kept = "".join(f"{key} = {value}\n" for key, value in sysctls.items() if key in outcome.effective)
    fact = {"effective": outcome.effective, "unsupported": outcome.unsupported}
    files = {
        tcp.SYSCTL_FILE: f"# Written by Ansible (role tcp_tuning): the settings this kernel takes.\n{kept}",
        tcp.ROUTES_FILE: json.dumps(routes, indent=2) + "\n",
        tcp.FACT_FILE: json.dumps(fact, indent=2) + "\n",
    }
    outcome.changed += [str(path) for path, text in files.items() if tcp.write(path, text, outcome.dry_run)]


def governed(effective: list[str]) -> list[dict[str, Any]]:
    """What now holds on the node and shall stay so, for the record of the converge."""
    files = [{"kind": "file", "key": str(path)} for path in (tcp.SYSCTL_FILE, tcp.ROUTES_FILE, tcp.FACT_FILE)]
    settings: list[dict[str, Any]] = []
    for name in effective:
        if name.startswith("route "):
            settings.append({"kind": "route", "key": name.split()[1]})
        else:
            settings.append({"kind": "sysctl", "key": name, "how": {"file": str(tcp.SYSCTL_FILE)}})
    return files + settings


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "sysctls": {"type": "dict", "required": True},
            "routes": {"type": "list", "elements": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    sysctls = {key: str(value) for key, value in sorted(module.params["sysctls"].items())}
    routes = [{k: v for k, v in route.items() if v is not None} for route in module.params["routes"]]
    outcome = Outcome(module.check_mode)
    try:
        for key, value in sysctls.items():
            outcome.attempt(key, sysctl_action(key, value, module.check_mode))
        for route in routes:
            name = f"route {route['cidr']} {route['congestion_control']}"
            outcome.attempt(name, route_action(route, module.check_mode))
        obsolete = obsolete_routes(routes)
        # Before the removal: the service would put back what the file still names.
        persist(outcome, sysctls, routes)
        for cidr in obsolete:
            if tcp.remove_route(cidr, module.check_mode):
                outcome.changed.append(f"route {cidr} removed")
    except (OSError, KeyError, ValueError) as error:
        module.fail_json(msg=f"the kernel or a file refused a setting it should take: {error}")
    module.exit_json(
        changed=bool(outcome.changed),
        changes=outcome.changed,
        effective=outcome.effective,
        unsupported=outcome.unsupported,
        devices=devices(routes),
        governs=governed(outcome.effective),
    )


if __name__ == "__main__":
    main()
