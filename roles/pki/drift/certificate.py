"""certificate: whether one lasts for some more days."""

from __future__ import annotations

import os

from infra.drift.kind import Found, How, Kind, is_flag
from infra.drift.looks import Look
from infra.drift.node import run


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

KINDS = (
    Kind(
        "certificate",
        look_at_certificate,
        {"lasts": is_flag},
        said={"lasts": "is to be renewed: it is gone, has ended or will end soon"},
        stands_alone=True,
    ),
)
