"""Lookup plugin of the role grafana: the dashboards of all capabilities."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.lookup import LookupBase

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.capabilities.monitoring.grafana import dashboard_files  # noqa: E402 - needs the path set above

DOCUMENTATION = """
name: causeway_dashboards
short_description: The dashboards that capabilities bring, as Grafana takes them
description:
  - The file that C(causeway dashboards) writes for each, as C(name) and C(text).
options:
  _terms:
    description: None.
"""


class LookupModule(LookupBase):  # type: ignore[misc] # ansible has no types
    """Thin: each capability has them in its own folder."""

    def run(self, terms: list[Any], variables: Any = None, **options: Any) -> list[dict[str, str]]:
        """A name and a text for each."""
        del terms, variables, options
        return [{"name": name, "text": text} for name, text in dashboard_files().items()]
