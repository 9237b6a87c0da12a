"""identities: who may do anything with a Ceph cluster and is in no declaration, by `cluster.py check ground`.

Who was there at the first seal is known, by the rights and the key it had then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.drift.kinds.check import BESIDE_ASPECTS, BESIDE_OURS, look_at_beside
from infra.drift.kinds.known import Known

if TYPE_CHECKING:
    from infra.drift.manifest import Manifest
    from infra.drift.repair import Obstacles


class Identities(Known):
    """Identities that nobody declared; the rights of one that was there are changed back by hand."""

    def key_of(self, aspect: str, line: str) -> str:
        """One by its name."""
        return line.split()[1]

    def undo(self, found: Obstacles, aspect: str, line: str, manifest: Manifest) -> None:
        """The command that takes one away."""
        found.undo(f"Ceph's {line}", "ceph", "auth", "rm", self.key_of(aspect, line))


KINDS = (Identities("identities", look_at_beside, BESIDE_ASPECTS, **BESIDE_OURS),)
