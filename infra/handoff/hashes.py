"""Hashes over what a converge depends on: files of the checkout, and values."""

import hashlib
import json
from typing import Any

from infra import ROOT

NOT_HASHED = {"molecule", "__pycache__", "causeway.yml"}
"""Files and folders that change nothing on a node; the last one is written by `up` itself."""


def tree_hash(*paths: str) -> str:
    """One hash over the files below these paths of the checkout, but for `NOT_HASHED`."""
    digest = hashlib.sha256()
    for start in paths:
        top = ROOT / start
        files = [top] if top.is_file() else sorted(p for p in top.rglob("*") if p.is_file())
        for file in files:
            relative = file.relative_to(ROOT)
            if not NOT_HASHED & set(relative.parts):
                digest.update(f"{relative}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def value_hash(value: Any) -> str:
    """One hash over a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
