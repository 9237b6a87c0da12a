"""What every verification shares: the host's expected values, and the three-way verdict.

A check that passes is *effective*. One that finds that this node cannot have the setting calls
`verdict.unsupported(why)`; one that can only show that a file says so calls `verdict.rendered(why)`. Neither is
proof, and a check that is skipped in any other way counts as failed.

Run by `python -m infra.handoff.verify`, which says by two environment variables what to expect and where to
write. Without them nothing here is collected: these tests are about nodes, never about this machine.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from testinfra.host import Host

from infra.handoff.expectations import Expectation, Expectations, parse

EXPECTATIONS = "CAUSEWAY_EXPECTATIONS"
RESULTS = "CAUSEWAY_RESULTS"


def pytest_ignore_collect() -> bool | None:
    return None if EXPECTATIONS in os.environ else True


def known() -> Expectations:
    return parse(Path(os.environ[EXPECTATIONS]).read_text())


def expectation_of(hostspec: str) -> Expectation:
    by_spec = {host.hostspec.partition("?")[0]: host for host in known().hosts}
    return by_spec[hostspec.partition("?")[0]]


class Expect:
    """The host's role variables as attributes; a misspelt one is an error, not a None."""

    def __init__(self, expectation: Expectation, addresses: dict[str, str]) -> None:
        self.host_name = expectation.host
        self.address = expectation.address
        self.connection = expectation.connection
        self.cluster_addresses = addresses
        self._variables = expectation.variables

    def __getattr__(self, name: str) -> Any:
        try:
            return self._variables[name]
        except KeyError:
            raise AttributeError(f"no role of {self.host_name} has a variable {name}") from None


@dataclass
class VerdictRecorder:
    """Ends a check with a verdict that is no proof."""

    request: pytest.FixtureRequest

    def unsupported(self, reason: str) -> NoReturn:
        """This node cannot have it; `reason` says what is lacking."""
        self._end("unsupported", reason)

    def rendered(self, reason: str) -> NoReturn:
        """It is written down, and nothing more can be shown here; `reason` says why."""
        self._end("rendered", reason)

    def _end(self, verdict: str, reason: str) -> NoReturn:
        self.request.node.user_properties += [("verdict", verdict), ("reason", reason)]
        pytest.skip(f"{verdict}: {reason}")


@pytest.fixture
def verdict(request: pytest.FixtureRequest) -> VerdictRecorder:
    return VerdictRecorder(request)


@pytest.fixture
def expect(host: Host) -> Expect:
    return Expect(expectation_of(host.backend.get_pytest_id()), known().addresses)


@pytest.fixture
def in_container(host: Host) -> bool:
    return bool(host.run("systemd-detect-virt --container --quiet").rc == 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[misc,assignment] # a hook wrapper is sent its result
    if report.when == "call" or not report.passed:
        spec = item.callspec.params["_testinfra_host"]  # type: ignore[attr-defined] # set by parametrisation
        expectation = expectation_of(spec if isinstance(spec, str) else spec.backend.get_pytest_id())
        line = describe(report) | {
            "host": expectation.host,
            "role": item.path.parent.name,
            "name": re.sub("^test ", "", item.originalname.replace("_", " ")),  # type: ignore[attr-defined] # Function
        }
        with Path(os.environ[RESULTS]).open("a") as results:
            results.write(json.dumps(line) + "\n")
    return report  # type: ignore[return-value] # a hook wrapper returns what it was sent


def describe(report: pytest.TestReport) -> dict[str, str]:
    """A report's verdict and message."""
    properties = dict(report.user_properties)
    if report.passed:
        return {"verdict": "effective", "message": ""}
    if report.skipped and "verdict" in properties:
        return {"verdict": str(properties["verdict"]), "message": str(properties["reason"])}
    if report.skipped:
        return {"verdict": "failed", "message": f"skipped without a verdict: {report.longreprtext}"}
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else report.longreprtext
    return {"verdict": "failed", "message": " ".join(text.split())[:500]}
