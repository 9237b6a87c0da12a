"""What a cluster is given beside its nodes: each capability in a package, found by its name here."""

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from infra.ground.capability import Capability, Role
from infra.ground.contract import Contract
from infra.ground.dashboard import Dashboard
from infra.ground.machine import Look

NAMES = (
    "fabric",
    "wan",
    "discovery",
    "base",
    "drift_watch",
    "reliability",
    "gpu",
    "monitoring",
    "logs",
    "energy",
    "containers",
    "storage",
    "acceptance",
)
"""Every capability there is; those that another one needs or uses are before it."""


FOLDER = Path(__file__).parent


def with_watch() -> tuple[str, ...]:
    """Those that bring alerts: `watch/alerts.yaml`, with tests and a runbook beside it."""
    return tuple(name for name in NAMES if alerts_of(name).is_file())


def alerts_of(name: str) -> Path:
    """A capability's rules for Prometheus."""
    return FOLDER / name / "watch" / "alerts.yaml"


def dashboards() -> tuple[Dashboard, ...]:
    """Every capability's, where `watch/dashboards.py` is."""
    modules = (import_module(f"{__name__}.{name}.watch.dashboards") for name in _with_dashboards())
    return tuple(one for module in modules for one in module.DASHBOARDS)


def dashboard_sources() -> tuple[str, ...]:
    """The files that say what they show, from the checkout's root."""
    return tuple(f"infra/capabilities/{name}/watch/dashboards.py" for name in _with_dashboards())


def _with_dashboards() -> tuple[str, ...]:
    return tuple(name for name in NAMES if (FOLDER / name / "watch" / "dashboards.py").is_file())


def has_section(name: str) -> bool:
    """Whether contracts have a part for it where it is declared."""
    return find_spec(f"{__name__}.{name}.section") is not None


@cache
def capabilities() -> tuple[Capability[Any], ...]:
    """All of them, in that order."""
    return tuple(import_module(f"{__name__}.{name}.capability").CAPABILITY for name in NAMES)


def roles() -> dict[str, Role]:
    """Every role that a capability brings, by its name."""
    return {role.name: role for handoff in _handoffs().values() for role in handoff.ROLES}


def owners() -> dict[str, str]:
    """Role → the capability that brings it."""
    return {role.name: name for name, handoff in _handoffs().items() for role in handoff.ROLES}


def variables(contract: Contract) -> dict[str, dict[str, dict[str, Any]]]:
    """Role → group of the inventory → the role's variables there."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for handoff in _handoffs().values():
        if of_handoff := getattr(handoff, "variables", None):
            found |= cast(dict[str, dict[str, dict[str, Any]]], of_handoff(contract))
    return found


def host_variables(contract: Contract) -> dict[str, dict[str, Any]]:
    """Host → the variables that are its own, of all roles."""
    found: dict[str, dict[str, Any]] = {}
    for handoff in _handoffs().values():
        if of_handoff := getattr(handoff, "host_variables", None):
            for host, own in of_handoff(contract).items():
                found.setdefault(host, {}).update(own)
    return found


@cache
def resources() -> tuple[ModuleType, ...]:
    """The modules `resources` of those that have one: `build(stack, spec, plan, opts)`."""
    found = (f"{__name__}.{name}.resources" for name in NAMES)
    return tuple(import_module(name) for name in found if find_spec(name))


@cache
def looks() -> dict[str, Look]:
    """Capability → what it looks for on machines that somebody has, of those that have a module `doctor`."""
    found = {name: f"{__name__}.{name}.doctor" for name in NAMES}
    return {name: import_module(module).LOOK for name, module in found.items() if find_spec(module)}


@cache
def _handoffs() -> dict[str, ModuleType]:
    """Capability → its module `handoff`, of those that bring roles."""
    found = {name: f"{__name__}.{name}.handoff" for name in NAMES}
    return {name: import_module(module) for name, module in found.items() if find_spec(module)}
