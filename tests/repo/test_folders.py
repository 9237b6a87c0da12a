"""Directories that roles write to: where a program takes all that lies there, a scan sees what was added."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from infra.drift.kinds.listing import listed
from infra.drift.leave import METRICS

ROOT = Path(__file__).resolve().parents[2]
TEMPLATED = re.compile(r"{{.*?}}")
BY_NAME = {
    "/etc/ansible": "holds facts.d, which is listed",
    "/etc/causeway": "our own programs, each with its file",
    "/etc/ceph": "a cluster's files have its name",
    "/etc/chrony": "chrony's own settings are compared as it reads them",
    "/etc/containerd": "one file",
    "/etc/containers": "files with names of their own; those that are read as a whole lie below",
    "/etc/default": "a unit names its file",
    "/etc/frr": "what FRR does is compared with its file",
    "/etc/ganesha": "one file",
    "/etc/grafana": "one file",
    "/etc/keepalived": "one file",
    "/etc/prometheus": "units name their files",
    "/etc/prometheus/causeway-receivers": "Alertmanager's settings name them",
    "/etc/prometheus/causeway-rules": "Prometheus' settings name them",
    "/etc/systemd": "files with names of their own; those that are read as a whole lie below",
    "/etc/systemd/system": "units, each compared by itself; those that are enabled count everywhere",
    "/etc/wireguard": "a unit has its file's name",
}
"""Directories whose files are read by their names, and how."""


def written(value: Any) -> Iterator[str]:
    """The paths below /etc that tasks, or the variables they loop over, write to."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("dest", "path") and str(inner).startswith("/etc/"):
                yield TEMPLATED.sub("x", inner)
            yield from written(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from written(inner)


def folders() -> set[str]:
    files = [file for part in ("tasks", "vars", "defaults") for file in ROOT.glob(f"roles/*/{part}/*.yml")]
    texts = (YAML(typ="safe", pure=True).load(file.read_text()) for file in files)
    found = {path.rpartition("/")[0] for text in texts for path in written(text)}
    return found - {"/etc"}


def test_a_directory_that_is_read_as_a_whole_is_listed() -> None:
    unlisted = {folder for folder in folders() if not listed().fullmatch(folder)}
    assert unlisted == set(BY_NAME), "listed in infra/drift/kinds/listing.py, or read by name"
    assert {"/etc/exports.d", "/etc/containers/certs.d/x", "/etc/grafana/provisioning/dashboards"} < folders()


TOLD = re.compile(r"causeway_[a-z_]+[.]prom")
PROGRAMS = {"acceptance": "infra/capabilities/acceptance/node/*.py", "drift_watch": "infra/drift/watch.py"}
"""Roles whose programs stand elsewhere."""


def test_what_programs_tell_node_exporter_goes_with_their_role() -> None:
    """But for what a task writes, which its record has."""
    told: dict[str, set[str]] = {}
    for role in (ROOT / "roles").iterdir():
        places = [*role.glob("[ftv]*/**/*"), *ROOT.glob(PROGRAMS.get(role.name, "-"))]
        texts = [path.read_text() for path in places if path.is_file() and not path.is_symlink()]
        written = {name for text in texts for name in re.findall(rf"dest: .*/({TOLD.pattern})", text)}
        for name in {name for text in texts for name in TOLD.findall(text)} - written:
            told.setdefault(name, set()).add(role.name)
    assert told.keys() == {name for names in METRICS.values() for name in names}
    for owner, names in METRICS.items():
        assert all(owner in told[name] for name in names), "another role's, which may only read it"
