"""Runs on a node, by a timer: compares it with its own manifest and writes what it finds as metrics.

`python3 -m infra.drift.watch MANIFEST DIRECTORY INTERVAL` writes DIRECTORY/causeway_drift.prom, whole or not
at all. INTERVAL: seconds from one look to the next, told so that others know when a look is missing.
Python 3.8 or newer, standard library only. Exit 0 whenever there is a file, whatever it says.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

from infra.drift.probe import NODE_LIMIT_S, entries_of, guarded, request_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HELP = {
    "causeway_drift_differences": "Governed things that are not as sealed, by role.",
    "causeway_drift_unsealed": "1 for a role whose last converge was not sealed: nothing is known of it.",
    "causeway_drift_sealed_timestamp_seconds": "When the role was sealed; 0 where it was not.",
    "causeway_drift_scan_success": "1 when the last look got through.",
    "causeway_drift_scan_timestamp_seconds": "When this node last looked.",
    "causeway_drift_scan_duration_seconds": "How long that took.",
    "causeway_drift_scan_interval_seconds": "From one look to the next, as it is set.",
}


def looked(path: str) -> dict[str, Any]:
    """Differences per role, and when each was sealed. OSError or ValueError when there is no telling."""
    with open(path) as file:
        manifest = json.load(file)
    pairs = entries_of(manifest)
    request = {**request_of(manifest, pairs), "patient": True}
    answer = json.loads(guarded(request, NODE_LIMIT_S))
    if "hangs" in answer:
        entry = pairs[answer["hangs"]][1]
        raise ValueError(f"reading {entry['kind']} {entry['key']} hangs")
    if manifest.get("machine") and answer["machine"] != manifest["machine"]:
        raise ValueError("the manifest is another machine's")
    differences = dict.fromkeys(manifest["roles"], 0)
    for number, _differs in answer["values"]:
        differences[pairs[number][0]] += 1
    sealed = {name: sealed_seconds(role.get("sealed_at")) for name, role in manifest["roles"].items()}
    return {"differences": differences, "sealed": sealed}


def sealed_seconds(moment: str | None) -> float:
    """ISO 8601 as seconds since 1970; 0 for none."""
    import datetime

    return datetime.datetime.fromisoformat(moment).timestamp() if moment else 0


def samples(found: dict[str, Any], started: float, took_s: float) -> dict[str, dict[str, float]]:
    """Metric → label text → value."""
    known = "differences" in found
    by_role = {
        "causeway_drift_differences": found.get("differences", {}),
        "causeway_drift_unsealed": {role: float(not at) for role, at in found.get("sealed", {}).items()},
        "causeway_drift_sealed_timestamp_seconds": found.get("sealed", {}),
    }
    lines = {
        name: {f'{{role="{role}"}}': value for role, value in values.items()}
        for name, values in by_role.items()
    }
    lines["causeway_drift_scan_success"] = {"": float(known)}
    lines["causeway_drift_scan_timestamp_seconds"] = {"": started}
    lines["causeway_drift_scan_duration_seconds"] = {"": took_s}
    return lines


def text(metrics: dict[str, dict[str, float]]) -> str:
    """Prometheus' text format."""
    lines = []
    for name, values in metrics.items():
        lines += [f"# HELP {name} {HELP[name]}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {value:.12g}" for labels, value in sorted(values.items())]
    return "\n".join(lines) + "\n"


def write(folder: str, content: str) -> None:
    """Whole or not at all: node_exporter may read at any moment. Names without `.prom` are not read.

    The folder may be another user's, or become it meanwhile: nothing that lies there is written through.
    """
    part, place = ".causeway_drift.part", os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=place)
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(part, new, 0o600, dir_fd=place), "w") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
        os.replace(part, "causeway_drift.prom", src_dir_fd=place, dst_dir_fd=place)
    finally:
        os.close(place)


def main(manifest: str, folder: str, interval_s: str) -> int:
    """Look and write."""
    started, clock = time.time(), time.monotonic()
    found = {}
    try:
        found = looked(manifest)
    except FileNotFoundError:
        print("nothing was sealed on this node yet: there is no " + manifest)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"cannot look: {type(error).__name__}: {error}", file=sys.stderr)
    told = samples(found, started, time.monotonic() - clock)
    told["causeway_drift_scan_interval_seconds"] = {"": float(interval_s)}
    write(folder, text(told))
    return 0


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # without waiting for a look that hangs
