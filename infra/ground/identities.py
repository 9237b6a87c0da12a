"""Which machine a host's name stands for, by what the machine itself does not decide.

A new node under an old name starts afresh; one whose /etc/machine-id somebody changed does not. Of nodes made
here the engine knows the instance; of machines that exist already the declaration names the host key.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra import ROOT
from infra.errors import CausewayError
from infra.ground.contract import Contract
from infra.ground.ssh import AUTHORITY
from infra.stack import stack_dir

INSTANCE = "instance "
"""Begins the identity of a node that was made here: what the engine calls it follows."""


def identities_of(contract: Contract, instances: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Host → identity. `instances`: host → {id, host_key}."""
    return {name: _identity(contract, name, instance) for name, instance in instances.items()}


def _identity(contract: Contract, host: str, instance: Mapping[str, Any]) -> str:
    if contract.regions[contract.region_of(host)].makes_nodes:
        return f"{INSTANCE}{instance['id']}"
    return _by_key(instance["host_key"])


def _by_key(host_key: str) -> str:
    return " ".join(["host key", *host_key.split()[:2]])


def of_machine(host_key: str) -> str:
    """A machine's identity by its declared host key; empty where that is an authority's, which many share."""
    return "" if host_key.startswith(AUTHORITY) else _by_key(host_key)


def identities_file(stack: str) -> Path:
    """Where `up` keeps them."""
    return ROOT / stack_dir(stack) / "identities.json"


def load_identities(stack: str) -> dict[str, str]:
    """Host → identity; empty for a stack that an older Causeway made, until the next `up`.

    CausewayError for a file that cannot be read.
    """
    path = identities_file(stack)
    try:
        known: dict[str, str] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CausewayError(f"{path} cannot be read: {error}", hint="./run up writes it anew") from None
    return known
