"""Runs on a node: compares it with a manifest, or reads the values to seal, and writes nothing.

With `node.py`, `looks.py` and the looks at the kinds in question it travels through ssh as one file, its
request behind it; the on-node timer has the looks at all kinds, and runs the same as `probe.py MANIFEST`. An
entry is `[kind, key, how, want]`; the answer is one line of JSON.
"""

from __future__ import annotations

import os
import sys
import time

from infra.drift.looks import Look
from infra.drift.node import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NODE_LIMIT_S = 60
"""Longest that the timer waits for one look; its unit ends it after twice that in all."""
LOOKS: dict[str, Callable[[Look, str, dict[str, Any]], dict[str, Any]]] = {}
"""Kind, or kind and key, → what looks at it. Filled by infra.drift.kinds, on a node by the assembly."""


def look(probe: Look, entry: list[Any]) -> dict[str, Any]:
    """What is found for one entry; an error is a finding."""
    kind, key, how, probe.want = entry
    looks = LOOKS.get(f"{kind} {key}") or LOOKS.get(kind)
    if looks is None:
        return {"error": f"this version of Causeway has no kind {readable(kind)}"}
    try:
        return {aspect: readable(value) for aspect, value in looks(probe, key, how).items()}
    except OSError as error:
        return {"error": readable(error.strerror or str(error))}
    except Exception as error:  # whatever one entry does, the others are looked at
        return {"error": readable(f"{type(error).__name__}: {error}")}


def readable(value: Any) -> Any:
    """The value with the bytes of a name that is no UTF-8 written out: JSON could not carry them."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    if isinstance(value, list):
        return [readable(part) for part in value]
    if isinstance(value, dict):
        return {readable(name): readable(part) for name, part in value.items()}
    return value


def sealed(probe: Look, entry: list[Any]) -> dict[str, Any]:
    """Everything about one entry, for sealing."""
    found = look(probe, entry)
    if "_text" in found:
        found["_text"] = text_or_none(found["_text"])
    return found


def difference(probe: Look, entry: list[Any]) -> dict[str, Any] | None:
    """`{"found": {aspect: value}}` for the aspects that differ, or None."""
    found, want = look(probe, entry), entry[3]
    if not found:
        return None
    differs = {aspect: found.get(aspect) for aspect in want if found.get(aspect) != want[aspect]}
    if "error" in found:
        differs = {"error": found["error"]}
    if not differs:
        return None
    answer = {"found": differs, "since": found.get("_since")}
    if "digest" in differs and "_text" in found:
        answer["text"] = text_or_none(found["_text"])
    return answer


def text_or_none(data: bytes) -> str | None:
    """Text that can be shown line by line."""
    try:
        text = data.decode()
    except ValueError:
        return None
    return None if "\0" in text else text


def work(request: dict[str, Any], at: Callable[[int], None]) -> dict[str, Any]:
    """The answer to a request: `mode`, `salt`, `entries`, `known`, `anew`. `at(i)` is told where we are.

    Modes: `seal` reads what there is; `scan` compares; `thorough` compares and takes nothing as unchanged.
    `anew`: what the timer was told a moment ago does not count.
    """
    entries = request["entries"]
    probe = Look(request["salt"], request["mode"], entries, request.get("known"))
    probe.patient = bool(request.get("patient"))
    probe.asks_anew = probe.asks_anew or bool(request.get("anew"))
    answer = {"machine": text_of("/etc/machine-id", "").strip(), "clock": time.time()}
    values: list[Any] = []
    for number, entry in enumerate(entries):
        at(number)
        if request["mode"] == "seal":
            values.append(sealed(probe, entry))
        else:
            differs = difference(probe, entry)
            if differs:
                values.append([number, differs])
    answer["values"] = values
    return answer


def encoded(answer: dict[str, Any]) -> bytes:
    """The answer as JSON; on a clean node without loading `json`, which takes as long as all the looking."""
    if not answer["values"] and answer["machine"].isalnum():
        machine, clock = answer["machine"], answer["clock"]
        return f'{{"machine": "{machine}", "clock": {clock:f}, "values": []}}'.encode()
    import json

    return json.dumps(answer).encode()


def guarded(request: dict[str, Any], limit_s: float) -> bytes:
    """`work` in a thread of its own, so that a file system that hangs is named and not waited for.

    It hangs when it stays at one thing for `limit_s`: a node that is busy, or emulated, gets on slowly.
    """
    from _thread import allocate_lock, start_new_thread

    done, answer = allocate_lock(), [b""]
    place = (0, time.monotonic())
    done.acquire()

    def at(number: int) -> None:
        nonlocal place
        place = (number, time.monotonic())

    def thread() -> None:
        try:
            answer[0] = encoded(work(request, at))
        finally:
            done.release()

    start_new_thread(thread, ())
    while (left_s := place[1] + limit_s - time.monotonic()) > 0:
        if done.acquire(True, left_s):
            return answer[0]
    return b'{"hangs": %d}' % place[0]


def serve(request: dict[str, Any], limit_s: float) -> None:
    """Answer one request on standard output, and end even when the look that hangs does not."""
    os.write(1, guarded(request, limit_s) + b"\n")
    os._exit(0)


def entries_of(manifest: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """A manifest's sealed entries in the order the probe answers them: `(role, entry)` pairs."""
    return [
        (name, entry) for name in sorted(manifest["roles"]) for entry in manifest["roles"][name]["entries"]
    ]


def request_of(
    manifest: dict[str, Any],
    pairs: list[tuple[str, dict[str, Any]]],
    mode: str = "scan",
    known: dict[str, list[str]] | None = None,
) -> dict[str, Any]:
    """The scan of these entries, as the probe takes it. `known`: kind → other keys that its look needs."""
    entries = [[e["kind"], e["key"], e.get("how") or {}, e["want"]] for _role, e in pairs]
    return {"mode": mode, "salt": manifest["salt"], "entries": entries, "known": known or {}}


def main(path: str) -> int:
    """On the node: compare with the node's own manifest; one JSON object, `drift` per role."""
    import json

    manifest = json.loads(text_of(path))
    pairs = entries_of(manifest)
    answer = json.loads(guarded(request_of(manifest, pairs), NODE_LIMIT_S))
    drift = dict.fromkeys(manifest["roles"], 0)
    for number, _differs in answer.get("values", []):
        drift[pairs[number][0]] += 1
    answer["drift"] = drift
    os.write(1, json.dumps(answer).encode() + b"\n")
    return 3 if any(drift.values()) or "hangs" in answer else 0


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))  # without waiting for a look that hangs
