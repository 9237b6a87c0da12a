"""Which hosts watch over their own drift."""

from infra.declaration import ClusterSpec
from infra.ground.capability import Role
from infra.ground.endpoint import EVERYONE


def _needed(spec: ClusterSpec) -> str:
    return "monitoring calls a node silent that has none" if spec.monitoring else ""


ROLES = (Role("drift_watch", lambda _contract: EVERYONE, needed=_needed),)
