"""Reads what came back from the probe. A node may say anything: its disk is damaged, another program answers
in the probe's place, or it was broken into. What passes here can be compared, sealed, planned and shown.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from infra.drift.kind import Kind, is_list, is_plain
from infra.drift.kinds import kind_of
from infra.drift.looks import TEXT_LIMIT_BYTES

ALLOWANCE_BYTES = 4 << 20
"""What an answer may say besides the texts of files."""
MOST_BYTES = 64 << 20
SHOWN_TEXTS_CHARS = 4 * TEXT_LIMIT_BYTES
"""So much text of one node is compared line by line: that holds up the scan of all others."""
NAME_CHARS = 128
LAST_SECOND = 253_402_300_799
"""Of the year 9999, the last that a date can say."""
ASPECT = re.compile(r"[a-z][a-z0-9_]{0,39}")
ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def most_bytes(request: Mapping[str, Any]) -> int:
    """How much an honest answer to a request can be: JSON may double a text."""
    return min(MOST_BYTES, ALLOWANCE_BYTES + 2 * TEXT_LIMIT_BYTES * len(request["entries"]))


def read_answer(said: bytes, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request, every value of the type that its readers count on; texts too long left out.

    `{"hangs": number of an entry}`, or `machine` and `values`: `[number, {found, since, text}]` of those
    entries that differ, or in mode `seal` what was found of every one. ValueError says what makes no sense.
    """
    answer = parsed(said)
    entries = request["entries"]
    if "hangs" in answer:
        _require(_is_index(answer["hangs"], len(entries)), "it hangs at a thing that was not asked for")
        return {"hangs": answer["hangs"]}
    machine, values = answer.get("machine"), answer.get("values")
    if not isinstance(machine, str) or len(machine) > NAME_CHARS or not machine.isprintable():
        raise ValueError("what stands in /etc/machine-id is no name of a machine")
    if not isinstance(values, list):
        raise ValueError("it has no list of values")
    if request["mode"] == "seal":
        _require(len(values) == len(entries), f"{len(values)} values for {len(entries)} things")
        for entry, found in zip(entries, values, strict=True):
            _check(_sealed, entry, found)
    else:
        _differing(entries, values)
    return {"machine": machine, "values": values}


def parsed(said: bytes) -> dict[str, Any]:
    """The one object that stands there. ValueError where it is none, or no text."""
    try:
        answer = json.loads(said.decode(), parse_constant=_no_constant)
        if ESCAPED_SURROGATE.search(said):  # halves of a character, unless they stand in pairs
            json.dumps(answer, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except UnicodeError:
        raise ValueError("it is no text") from None
    if not isinstance(answer, dict):
        raise ValueError("it is no object")
    return answer


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _check(check: Callable[[Kind, Any], None], entry: list[Any], value: Any) -> None:
    """Check what was found for an entry, by its kind; what is wrong is said of that entry."""
    try:
        check(kind_of(entry[0], entry[1]), value)
    except ValueError as error:
        raise ValueError(f"{entry[0]} {entry[1]}: {error}") from None


def _differing(entries: list[Any], values: list[Any]) -> None:
    """A scan's values: each entry once at most, in order."""
    last, chars = -1, 0
    for value in values:
        if not (isinstance(value, list) and len(value) == 2 and _is_index(value[0], len(entries))):
            raise ValueError("a difference of a thing that was not asked for")
        number, difference = value
        _require(number > last, "a thing that differs twice")
        last = number
        _check(_difference, entries[number], difference)
        chars += len(difference.get("text") or "")
        if chars > SHOWN_TEXTS_CHARS:
            difference["text"] = None


def _difference(kind: Kind, difference: Any) -> None:
    """`{"found": {aspect: value}, "since": seconds, "text": text}`."""
    if not isinstance(difference, dict) or not isinstance(difference.get("found"), dict):
        raise ValueError("nothing was found")
    _aspects(kind, difference["found"])
    kind.check(difference["found"])
    _require(bool(difference["found"]), "nothing differs")
    _require(_is_moment(difference.get("since")), "it changed at a time that is none")
    difference["text"] = _text(difference.get("text"))


def _sealed(kind: Kind, found: Any) -> None:
    """`{aspect: value}`, and underscored what helps to seal and is not compared; or an error."""
    if not isinstance(found, dict):
        raise ValueError("nothing was found")
    _aspects(kind, {name: value for name, value in found.items() if not name.startswith("_")})
    kind.check(found)
    if "error" not in found:
        missing = [name for name in kind.always if name not in found]
        _require(not missing, f"it says nothing of {', '.join(missing)}")
        _require(all(found.get(name, "") is not None for name in kind.never_none), "it has no list")
    _require(_is_moment(found.get("_since")), "it changed at a time that is none")
    found["_text"] = _text(found.get("_text"))
    for name in ("_sha1", "_type"):
        _require(isinstance(found.get(name), str | None), f"{name} is no text")
    if "_inputs" in found:
        form = isinstance(found["_inputs"], list | dict)
        _require(form and is_plain(found["_inputs"]), "_inputs is unknown")
    _require(is_list(found.get("_packaged", [])), "_packaged is no list")


def _aspects(kind: Kind, found: Mapping[str, Any]) -> None:
    for name, value in found.items():
        _require(bool(ASPECT.fullmatch(name)), "an aspect that has no name")
        shape = kind.aspects.get(name) or kind.shapes.get(name) or is_plain
        _require(value is None or shape(value), f"{name} is of the wrong type")
        _require(name != "error" or isinstance(value, str), "an error without a text")


def _text(value: Any) -> str | None:
    _require(isinstance(value, str | None), "its text is none")
    return None if value is None or len(value) > TEXT_LIMIT_BYTES else str(value)


def _is_index(value: Any, length: int) -> bool:
    return type(value) is int and 0 <= value < length  # a truth value is an int, too


def _is_moment(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and abs(value) <= LAST_SECOND)  # not NaN
