"""Lookup plugin of the role drift_watch: the probe with the looks at all kinds, as one file for a node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.lookup import LookupBase

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.drift.assembly import probe_source  # noqa: E402 - needs the path set above

DOCUMENTATION = """
name: causeway_probe
short_description: The probe of C(causeway drift) as one file
description:
  - What a scan sends over SSH, for a node that looks by itself.
options: {}
"""


class LookupModule(LookupBase):  # type: ignore[misc] # ansible has no types
    """Thin: `infra.drift.assembly` makes it."""

    def run(self, terms: list[Any], variables: Any = None, **options: Any) -> list[str]:
        """One text."""
        del terms, variables, options
        return [probe_source() + "\n"]
