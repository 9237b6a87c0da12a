"""Callback plugin: starts the proof of a repair where it outlives a task, in Ansible's own process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.drift import proof, waves  # noqa: E402 - needs the path set above

DOCUMENTATION = """
name: causeway_proof
type: aggregate
short_description: Has the proof of a repair ready
description:
  - Starts what the task C(causeway_proof) asks for with C(prepare), and ends it with the run.
  - Names at the end of the run the hosts that a repair had to leave.
requirements: []
"""


class CallbackModule(CallbackBase):  # type: ignore[misc] # ansible has no types
    """Thin: `infra.drift.proof` does it."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "causeway_proof"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        proof.is_awaited = True

    def v2_runner_on_ok(self, result: Any) -> None:
        """The task that prepares says what to prove."""
        if result.task.action == "causeway_proof" and (file := result.result.get("expectations_file")):
            proof.ready = proof.Proof(Path(file).read_text())
            Path(file).unlink()

    def v2_playbook_on_stats(self, _stats: Any) -> None:
        """The run is over: say last what was not repaired."""
        if proof.ready is not None:
            proof.ready.end()
        for line in waves.current.in_words():
            self._display.error(line, wrap_text=False)
