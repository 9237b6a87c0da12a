"""certificate: whether one lasts for some more days."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Found, How, Kind, is_flag
from infra.drift.looks import Look
from infra.drift.node import run

if TYPE_CHECKING:
    from collections.abc import Mapping


def look_at_certificate(node: Look, key: str, how: How) -> Found:
    """Whether it lasts for more than `how["days"]` days; None where there is none."""
    if not os.path.exists(key):
        return {"lasts": None}
    try:
        run(["openssl", "x509", "-in", key, "-noout", "-checkend", str(int(how["days"]) * 86400)])
    except ValueError as error:
        if "will expire" not in str(error):
            raise
        return {"lasts": False}
    return {"lasts": True}


# On the controller


class Certificate(Kind):
    """A certificate, of which time alone makes a difference."""

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """What is to be done about it."""
        return "is gone" if found.get("lasts") is None else "has ended or ends soon, and is to be renewed"


KINDS = (Certificate("certificate", look_at_certificate, {"lasts": is_flag}, stands_alone=True),)
