"""Lookup plugin of the role prometheus: the alerts of a capability."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.lookup import LookupBase

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.capabilities import alerts_of  # noqa: E402 - needs the path set above

DOCUMENTATION = """
name: causeway_watch
short_description: The rules for Prometheus that a capability brings
description:
  - The text of C(infra/capabilities/NAME/watch/alerts.yaml).
options:
  _terms:
    description: Names of capabilities.
"""


class LookupModule(LookupBase):  # type: ignore[misc] # ansible has no types
    """Thin: each capability has them in its own folder."""

    def run(self, terms: list[Any], variables: Any = None, **options: Any) -> list[str]:
        """A text for each name."""
        del variables, options
        return [alerts_of(str(term)).read_text() for term in terms]
