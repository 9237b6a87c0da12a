"""The proof at the end of a repair: made ready while the roles run, so that only the checks take time.

The process belongs to ansible-playbook itself, not to one of the workers that it forks for its tasks: so it
lives from one task to another. It ends with the run, however that ends, for it looks whether its parent
lives. A worker inherits what this module holds, and may talk to it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress

from infra import ROOT

is_awaited = False
"""Whether the callback that starts it is enabled."""
ready: "Proof | None" = None
"""Of this run; set in ansible-playbook's own process."""


class Proof:
    """`python -m infra.verify.verification --stand-by PID`."""

    def __init__(self, expectations: str) -> None:
        """Start it for the hosts and roles of EXPECTATIONS, as `Expectations.dump` has them."""
        self._process = subprocess.Popen(  # deadline: its own, for every host that it looks at
            [sys.executable, "-m", "infra.verify.verification", "--stand-by", str(os.getpid()), "--json"],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for Ansible: with that gone, this ends
        )
        self._tell(expectations)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: it is a pipe
        with suppress(BrokenPipeError):  # it ended; what it said tells why
            print(line, file=self._process.stdin, flush=True)

    def look(self, hosts: Iterable[str]) -> str:
        """Run the checks on those hosts, once; the result as JSON, or what went wrong."""
        assert self._process.stdout is not None  # noqa: S101 - likewise
        self._tell(json.dumps(list(hosts)))
        return self._process.stdout.read()

    def end(self) -> None:
        """Let it go, in the process that started it."""
        with suppress(BrokenPipeError):
            self._process.communicate()  # deadline: its own, for it is told nothing more
