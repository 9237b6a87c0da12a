"""Reads what a machine answered to a look: whatever it is, a machine comes of it, or a ValueError."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from infra.drift.answer import parsed
from infra.ground.machine import Machine

CLOCK_ERROR_S = 0.5
"""So much can be the trip's own."""


def read(said: bytes, began: float = 0.0, ended: float = 0.0) -> Machine:
    """What a machine answered, asked and heard at these times. ValueError where it makes no sense."""
    answer = parsed(said)
    if "host" in answer:
        return _bare(answer)
    try:
        machine = Machine.model_validate(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg']}") from None
    ahead, behind = machine.clock_s - ended, began - machine.clock_s
    offset = ahead if ahead > CLOCK_ERROR_S else -behind if behind > CLOCK_ERROR_S else 0.0
    return machine.model_copy(update={"offset_s": offset})


def _bare(answer: Mapping[str, Any]) -> Machine:
    """Of a machine without Python or without root: what its shell said."""
    text = _text(answer.get("os", ""))
    known = {key: value.strip("\"'") for key, value in re.findall(r"(?m)^(\w+)=(.*)$", text)}
    return Machine(
        os_id=known.get("ID", ""),
        os_like=known.get("ID_LIKE", ""),
        os_codename=known.get("VERSION_CODENAME", ""),
        os_name=known.get("PRETTY_NAME", ""),
        python=str(answer.get("python", "")),
        root=answer.get("root") == "yes",
        sudo=_text(answer.get("sudo", "")).strip(),
        hostname=str(answer["host"]),
    )


def _text(encoded: object) -> str:
    try:
        return base64.b64decode(str(encoded), validate=True).decode(errors="replace")
    except binascii.Error:
        return ""
