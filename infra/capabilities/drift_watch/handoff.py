"""Which hosts watch over their own drift."""

from infra.ground.capability import Role
from infra.ground.endpoint import EVERYONE

ROLES = (Role("drift_watch", lambda _contract: EVERYONE),)
