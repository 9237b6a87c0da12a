"""What every verification shares: the host's expected values, and the three-way verdict.

A check that passes is *effective*. One that finds that this node cannot have the setting calls
`verdict.unsupported(why)`; one that can only show that a file says so calls `verdict.rendered(why)`. Neither
is proof, and a check that is skipped in any other way counts as failed.

A check only looks, or makes and removes things of its own. One that alters what it finds, and be it for a
moment (a route, a qdisc, a daemon, a full link), is marked `experiment`, and left out on machines that people
work on.

Every check has a deadline (patience.py): where it says nothing by `@pytest.mark.deadline(s)`, a plain one.

Run by `python -m infra.verify.verification`, which says by environment variables what to expect, where to
write, and on which descriptor it tells which hosts to look at. Without them nothing here is
collected: these tests are about nodes, never about this machine.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
import testinfra
from testinfra.host import Host

from infra.verify.expectations import Expectation, Expectations, parse
from tests.verify.backend import install
from tests.verify.patience import LIMIT_S, Patience
from tests.verify.side_by_side import Hung, SideBySide, deadline
from tests.verify.support import Expect, VerdictRecorder

EXPECTATIONS = "CAUSEWAY_EXPECTATIONS"
RESULTS = "CAUSEWAY_RESULTS"
TOLD = "CAUSEWAY_TOLD"
ANSWER_S = 5.0
"""For the cheapest question, to a host of which a check has hung."""
ALLOWED_S = pytest.StashKey[float]()
NOT_TRIED = pytest.StashKey[str]()
FAILED = pytest.StashKey[bool]()
"""Of a check: True where it hung, too."""


def pytest_configure() -> None:
    if EXPECTATIONS in os.environ:
        install(known().hosts)


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
    """A host's own roles: all hosts of one process are collected with all roles of any of them."""
    if TOLD in os.environ:  # or else the items are those of other folders
        items[:] = [item for item in items if role_of(item) in expectation_of(hostspec_of(item)).features]


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """All is ready: look at the hosts, as they are told."""
    if TOLD not in os.environ:
        return None
    items: dict[str, list[pytest.Item]] = {}
    for item in session.items:
        items.setdefault(expectation_of(hostspec_of(item)).host, []).append(item)
    all_hosts = SideBySide(lambda host, tell: look_at(items.get(host, ()), tell))
    all_hosts.run(int(os.environ[TOLD]))
    for host, check in all_hosts.killed.items():
        note(host, "", check, "failed", "hung, and did not end after its deadline: the rest was left out")
    return True


def look_at(items: Sequence[pytest.Item], tell: Callable[[str, float], None]) -> None:
    """Run a host's checks, each within its deadline; what it is about to do goes to `tell`."""
    patience = Patience()
    for item, following in zip(items, [*items[1:], None], strict=True):
        role, name, mark = role_of(item), name_of(item), item.get_closest_marker("deadline")
        experiment = item.get_closest_marker("experiment") is not None
        file, declared_s = item.path.name, mark.args[0] if mark else LIMIT_S
        limit_s = patience.limit_s(role, file, declared_s, experiment=experiment)
        if not limit_s:
            item.stash[NOT_TRIED] = patience.why_not(role)
        item.stash[ALLOWED_S] = limit_s
        tell(f"{role}: {name}", 3 * limit_s)  # to set up, to look, and to put back
        began = time.monotonic()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        failed = FAILED in item.stash and limit_s > 0
        hung = failed and item.stash[FAILED]
        patience.took(role, file, name, time.monotonic() - began, failed=failed, hung=hung)
        if hung and not answers(item):
            host = expectation_of(hostspec_of(item)).host
            note(host, "", "", "unreachable", f"no answer any more, since the check “{role}: {name}”")
            return


def answers(item: pytest.Item) -> bool:
    """Whether a check's host still says anything."""
    try:
        with deadline(ANSWER_S):
            host = testinfra.get_host(hostspec_of(item), ssh_config=item.config.getoption("ssh_config"))
            return bool(host.run("true").rc == 0)
    except (Hung, RuntimeError):
        return False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before any fixture of an experiment, or of what is not tried, looks at the node."""
    if item.get_closest_marker("experiment") and not expectation_of(hostspec_of(item)).experiments:
        reason = "it alters the node for a moment; -e verify_experiments=true of playbooks/verify.yml runs it"
        item.user_properties += [("verdict", "left out"), ("reason", reason)]
        pytest.skip(reason)
    if NOT_TRIED in item.stash:
        pytest.fail(item.stash[NOT_TRIED], pytrace=False)


def within_its_deadline(item: pytest.Item) -> Iterator[None]:
    """A part of a check, its fixtures among them."""
    if not (limit_s := item.stash.get(ALLOWED_S, 0)):
        return (yield)
    with deadline(limit_s):
        return (yield)


@pytest.hookimpl(wrapper=True, specname="pytest_runtest_setup")
def pytest_setup_in_time(item: pytest.Item) -> Iterator[None]:
    return (yield from within_its_deadline(item))


@pytest.hookimpl(wrapper=True, specname="pytest_runtest_call")
def pytest_call_in_time(item: pytest.Item) -> Iterator[None]:
    return (yield from within_its_deadline(item))


@pytest.hookimpl(wrapper=True, specname="pytest_runtest_teardown")
def pytest_teardown_in_time(item: pytest.Item) -> Iterator[None]:
    return (yield from within_its_deadline(item))


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
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment] # a hook wrapper is sent its result
    if report.failed and call.excinfo:
        item.stash[FAILED] = isinstance(call.excinfo.value, Hung)
        if isinstance(call.excinfo.value, pytest.fail.Exception):
            report.longrepr = call.excinfo.value.msg  # ours, and said without the name of its class
    if report.when == "call" or not report.passed:
        said = describe(report)
        if said["verdict"]:
            host = expectation_of(hostspec_of(item)).host
            note(host, role_of(item), name_of(item), said["verdict"], said["message"])
    return report  # type: ignore[return-value] # a hook wrapper returns what it was sent


def note(host: str, role: str, name: str, verdict: str, message: str) -> None:
    """Write a check down, in one piece: several processes write here."""
    line = {"host": host, "role": role, "name": name, "verdict": verdict, "message": message}
    with Path(os.environ[RESULTS]).open("a") as results:
        results.write(json.dumps(line) + "\n")


def name_of(item: pytest.Item) -> str:
    """What a check is called in a report."""
    return check_name(item.name, hostspec_of(item))


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
