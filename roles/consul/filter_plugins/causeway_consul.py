"""Filters of the role consul: what is made on the controller, from secrets that never leave it."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Callable
from typing import Any


def consul_token(seed: str, purpose: str) -> str:
    """The token for a purpose: a UUID that only those can tell who know the seed (HMAC-SHA256)."""
    digest = hmac.new(seed.strip().encode(), purpose.encode(), hashlib.sha256).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def consul_tokens(seed: str, purposes: list[str]) -> dict[str, dict[str, str]]:
    """Purpose → its token (`secret`), and the public name by which that is changed or taken (`accessor`)."""
    return {
        purpose: {
            "secret": consul_token(seed, purpose),
            "accessor": consul_token(seed, f"accessor {purpose}"),
        }
        for purpose in purposes
    }


class FilterModule:
    """What Ansible asks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {"consul_token": consul_token, "consul_tokens": consul_tokens}
