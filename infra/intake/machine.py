"""A machine as a list names it, and what of a list cannot be used."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from infra.errors import BadInputError, one_line

LONGEST_WORD = 120
ASKS = "password"
"""What a list says in the column `sudo` where it asks."""
ROLES = ("control", "gpu", "storage", "gateway")
ROLE_WORDS = {
    "control": (
        "control",
        "controller",
        "head",
        "login",
        "mgmt",
        "management",
        "master",
        "admin",
        "services",
    ),
    "gpu": ("gpu", "gpus", "compute", "worker", "workers", "dgx", "hgx"),
    "storage": ("storage", "ceph", "nfs", "osd"),
    "gateway": ("gateway", "gateways", "gw", "edge", "router", "routers"),
}
"""By which a pool's name says what its machines are for."""


@dataclass(frozen=True)
class Row:
    """One machine of a list. `where`: its place there, as errors name it; `values`: what the list says."""

    where: str
    name: str
    values: Mapping[str, str] = field(default_factory=dict)

    def get(self, key: str) -> str:
        """What stands in a column; empty where nothing does."""
        return self.values.get(key, "")


class ListError(BadInputError):
    """Rows that cannot be used: each with its place and the reason."""

    def __init__(self, complaints: Iterable[str], hint: str = "") -> None:
        super().__init__("\n".join(complaints), hint)


def complaint(row: Row, message: str) -> str:
    """What is wrong with a row."""
    return f"{row.where}: {word(row.name) or 'a machine without a name'}: {message}"


def word(text: str) -> str:
    """A text of a list as it can be shown: one line that is short enough."""
    return one_line(text, LONGEST_WORD)


def label(text: str) -> str:
    """The DNS label that a name makes: `GPU_nodes` → `gpu-nodes`; empty where nothing is left."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def role_of(pool: str) -> str | None:
    """What the machines of a pool are for, by its name; None where it does not say, or says two things."""
    words = set(re.split(r"[^a-z]+", pool.lower()))
    found = [role for role, known in ROLE_WORDS.items() if words & set(known)]
    return found[0] if len(found) == 1 else None
