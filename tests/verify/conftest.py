"""What every verification shares: the host's expected values, and the three-way verdict.

A check that passes is *effective*. One that finds that this node cannot have the setting calls
`verdict.unsupported(why)`; one that can only show that a file says so calls `verdict.rendered(why)`. Neither
is proof, and a check that is skipped in any other way counts as failed.

A check only looks, or makes and removes things of its own. One that alters what it finds, and be it for a
moment (a route, a qdisc, a daemon, a full link), is marked `experiment`, and left out on machines that people
work on.

Run by `python -m infra.verify.verification`, which says by environment variables what to expect, where to
write, and on which descriptor it tells which hosts to look at. Without them nothing here is
collected: these tests are about nodes, never about this machine.
"""

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from testinfra.host import Host

from infra.verify.expectations import Expectation, Expectations, parse
from tests.verify.support import Expect, VerdictRecorder

EXPECTATIONS = "CAUSEWAY_EXPECTATIONS"
RESULTS = "CAUSEWAY_RESULTS"
TOLD = "CAUSEWAY_TOLD"


def pytest_ignore_collect() -> bool | None:
    return None if EXPECTATIONS in os.environ else True


@cache
def known() -> Expectations:
    return parse(Path(os.environ[EXPECTATIONS]).read_text())


@cache
def by_hostspec() -> dict[str, Expectation]:
    return {host.hostspec.partition("?")[0]: host for host in known().hosts}


def expectation_of(hostspec: str) -> Expectation:
    return by_hostspec()[hostspec.partition("?")[0]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All is ready: wait to be told which hosts to look at, as a list in JSON. The end of file means none."""
    if TOLD not in os.environ:
        return  # the items are those of other folders
    with os.fdopen(int(os.environ[TOLD])) as told:
        named = json.loads(told.readline() or "[]")

    def is_wanted(item: pytest.Item) -> bool:
        expectation = expectation_of(hostspec_of(item))
        return expectation.host in named and role_of(item) in expectation.features

    items[:] = filter(is_wanted, items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of an experiment looks at the node."""
    if item.get_closest_marker("experiment") and not expectation_of(hostspec_of(item)).experiments:
        reason = "it alters the node for a moment; -e verify_experiments=true of playbooks/verify.yml runs it"
        item.user_properties += [("verdict", "left out"), ("reason", reason)]
        pytest.skip(reason)


def role_of(item: pytest.Item) -> str:
    """The role that a check is about."""
    return item.path.parent.name


def hostspec_of(item: pytest.Item) -> str:
    """The host that a check looks at, as Testinfra names it."""
    spec = item.callspec.params["_testinfra_host"]  # type: ignore[attr-defined] # set by parametrisation
    return spec if isinstance(spec, str) else str(spec.backend.get_pytest_id())


@pytest.fixture
def verdict(request: pytest.FixtureRequest) -> VerdictRecorder:
    return VerdictRecorder(request)


@pytest.fixture(scope="module")
def expect(host: Host) -> Expect:
    return Expect(expectation_of(host.backend.get_pytest_id()), known().addresses)


@pytest.fixture(scope="module")
def in_container(host: Host) -> bool:
    return bool(host.run("systemd-detect-virt --container --quiet").rc == 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment] # a hook wrapper is sent its result
    if report.when == "call" or not report.passed:
        hostspec = hostspec_of(item)
        line = describe(report) | {
            "host": expectation_of(hostspec).host,
            "role": role_of(item),
            "name": check_name(item.name, hostspec),
        }
        if line["verdict"]:
            with Path(os.environ[RESULTS]).open("a") as results:
                results.write(json.dumps(line) + "\n")
    return report  # type: ignore[return-value] # a hook wrapper returns what it was sent


def check_name(test: str, hostspec: str) -> str:
    """`test_open_files[ssh://tokyo-gpu-0-login]` → `open files (login)`."""
    function, _, parameters = test.removesuffix("]").partition("[")
    words = function.removeprefix("test_").replace("_", " ")
    parameter = parameters.removeprefix(hostspec).strip("-")
    return f"{words} ({parameter})" if parameter else words


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
    words = " ".join(text.replace("AssertionError: ", "").replace("Use -v to get more diff", "").split())
    return {"verdict": "failed", "message": words[:500]}
