"""Every node watches over its own drift; nothing of it is declared, and what it needs is on the node."""

from infra.ground.capability import Capability
from infra.ground.contract import Section


class DriftWatch(Capability[Section]):
    """Every cluster has it."""

    name = "drift_watch"


CAPABILITY = DriftWatch()
