"""Whatever a node answers: it fails by name or is shown, and the others are as they would be alone."""

import asyncio
import json
import math
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.declaration import ClusterSpec
from infra.drift import findings, report, scan, seal, task_inputs, trip
from infra.drift import manifest as manifests
from infra.drift.assembly import PYTHON, script
from infra.drift.findings import HostReport, text_diff
from infra.drift.inputs import Inputs
from infra.drift.looks import TEXT_LIMIT_BYTES
from infra.drift.manifest import Entry, Manifest, RoleManifest, load_manifest, save_manifest
from infra.drift.page import DriftPage
from infra.drift.probe import entries_of, request_of
from infra.drift.repair import host_plan
from infra.ground.contract import Contract
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from tests.patience import wait_for
from tests.unit.ways import Way

HOSTS = [f"tokyo-control-{number}" for number in range(4)]
ODD = HOSTS[1]
LIMIT_S = 60
READ_STEPS = task_inputs._known_steps
UNFORESEEN = re.compile(r"\b[A-Z]\w*(Error|Exception)\b")
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")
Answer = Callable[[str], bytes]

FILE = {"type": "file", "digest": "d", "mode": "0644", "owner": "root", "group": "root", "immutable": False}
UNIT = {"active": "active", "enabled": "enabled", "load": "loaded", "reload_needed": False}
USER = {"uid": "0", "gid": "0", "home": "/", "shell": "/bin/sh", "groups": ["a"], "password": "d"}
FOUND: dict[tuple[str, str], dict[str, Any]] = {
    ("file", "/etc/x"): {**FILE, "_since": 1.5, "_text": "one\n", "_sha1": "s"},
    ("file", "/usr/bin/large"): {**FILE, "_since": 1.5, "_inputs": [1, 2, 3, 4, "d"]},
    ("link", "/etc/l"): {"type": "link", "target": "/a", "mode": "0777", "owner": "root", "group": "root"},
    ("absent", "/etc/gone"): {"type": "absent", "_since": None},
    ("listing", "/etc/sysctl.d"): {"names": ["a.conf", "b.conf"], "_since": 1.5},
    ("effective", "sshd -T"): {"output": ["a", "b"], "_inputs": {"/etc/ssh/x": "d"}, "_since": 0},
    ("package", "x"): {"installed": True, "version": "1", "hold": False},
    ("unit", "x.service"): UNIT
    | {"fragment": "/etc/systemd/system/x.service", "dropins": ["/d"], "_type": "simple", "_since": 1.5},
    ("sysctl", "net.a"): {"live": "1", "kept": None},
    ("sysfs", "/sys/x"): {"value": "1"},
    ("check", "roce"): {"output": ["ok"]},
    ("module", "m"): {"loaded": True},
    ("mount", "/srv"): {"fstab": None, "mounted": "a ext4 rw"},
    ("interface", "eth0"): {"mtu_bytes": 1500, "up": True, "qdisc": "fq"},
    ("route", "10.0.0.0/8"): {"route": "via 10.0.0.1"},
    ("nft", "inet f"): {"rules": ["a"]},
    ("user", "root"): {"exists": True, **USER},
    ("group", "g"): {"exists": True, "gid": "1", "members": ["root"]},
    ("authorized_keys", "/root/.ssh/authorized_keys"): {"keys": ["SHA256:a x"], "_since": 1.5},
    ("hostname", "hostname"): {"live": "n", "kept": "n"},
    ("locale", "C.UTF-8"): {"available": True},
}
HOW: dict[str, dict[str, Any]] = {
    "effective": {"inputs": ["/etc/ssh"]},
    "authorized_keys": {"own": ["SHA256:a x"], "taken": []},
}


def compared(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if not name.startswith("_")}


SCAN_HONEST: Any = {
    "machine": "m",
    "clock": 1.5,
    "values": [
        [number, {"found": compared(found), "since": 1.5, "text": "one\ntwo\n"}]
        for number, found in enumerate(FOUND.values())
    ],
}
SEAL_HONEST: Any = {"machine": "m", "clock": 1.5, "values": list(FOUND.values())}
RECORD: dict[str, Any] = {
    "claims": [
        {"kind": kind, "key": key, "task": "t", "tasks": ["t"], "reported": {}, "how": HOW.get(kind, {})}
        | {"stated_by": [], "compared": {}}
        | {"aspects": None, "changed": False, "handler": False}
        for kind, key in FOUND
    ],
    **{"whole": True, "uncovered": {}, "errors": [], "handlers": []},
}


def contract() -> Contract:
    pool = {"name": "control", "role": "control", "count": len(HOSTS)}
    region = {"name": "tokyo", "provider": {"kind": "local"}, "cidr": "10.81.0.0/16", "pools": [pool]}
    spec = ClusterSpec.model_validate({"name": "c", "regions": [region]})
    return build_contract(spec, make_plan(spec), "s")


CONTRACT = contract()
INPUTS = {name: {"base": "i"} for name in HOSTS}


@pytest.fixture(scope="module", autouse=True)
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stack whose ways to the nodes are stand-ins; everything that reads an answer is real."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("checkout")
        patch.setattr(manifests, "ROOT", folder)
        patch.setattr(seal, "load_contract", lambda _path: CONTRACT)
        patch.setattr(Inputs, "all", lambda _known: INPUTS)

        async def open_way(_trips: trip.Trips, host: str) -> Way:
            await asyncio.sleep(0)
            return Way(host)

        patch.setattr(trip.Trips, "open", open_way)
        patch.setattr(trip.Trips, "as_root", lambda _trips, _host, command: command)
        yield folder


def answering(answers: Answer, patch: pytest.MonkeyPatch) -> None:
    async def execute(way: Way, command: str, *_more: Any) -> tuple[bytes, bytes, int | None]:
        await asyncio.sleep(0)
        return (answers(way.host), b"", None) if command == PYTHON else (b"", b"", 0)

    patch.setattr(trip, "execute", execute)
    patch.setattr(seal, "execute", execute)


def sealed_before() -> None:
    """Manifests of all hosts in which everything has another value than what is found now."""
    text = manifests.keep_text("s", "".join(f"{number}\n" for number in range(300)))
    entries = [
        Entry(
            kind=kind,
            key=key,
            task="t",
            tasks=["t"],
            want={name: other(value) for name, value in compared(found).items()},
            how=HOW.get(kind, {}),
            text=text,
        )
        for (kind, key), found in FOUND.items()
    ]
    for name in HOSTS:
        part = RoleManifest(inputs="i", sealed_at="now", entries=entries)
        save_manifest("s", Manifest(host=name, machine="m", salt="salt", roles={"base": part}))


def other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case list():
            return [f"{item}2" for item in value]
        case str():
            return f"{value}2"
        case _:
            return None


async def gathered(names: list[str]) -> dict[str, HostReport]:
    found = {}
    async for one in scan._scan(scan.Scanner(CONTRACT, INPUTS), names, 2):
        assert one.host not in found
        found[one.host] = one
        one.took_s = 0.0
    return found


def scanned(answers: Answer, names: list[str] = HOSTS) -> dict[str, HostReport]:
    """The scan; a worker that died would have it wait for ever."""
    with pytest.MonkeyPatch.context() as patch:
        answering(answers, patch)
        return asyncio.run(asyncio.wait_for(gathered(names), LIMIT_S))


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def one_says(odd: bytes, honest: Any) -> Answer:
    return lambda host: odd if host == ODD else encoded(honest)


numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([math.nan, math.inf, 1e300, -1, 10**4000, 2**64, True]),
)
texts = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(
    ["\x1b]0;x\x07", "\u009b2J", "\ud800", "../..", "/", "", "a\r\nnode: clean"]
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


def spots(tree: Any) -> list[tuple[Any, ...]]:
    """The way to every value in a tree."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [()] + [(key, *rest) for key, value in pairs for rest in spots(value)]


@st.composite
def mutations(draw: st.DrawFn, honest: Any) -> bytes:
    """An honest answer with one to three values replaced, gone or given twice."""
    tree = json.loads(json.dumps(honest))
    for _ in range(draw(st.integers(1, 3))):
        way = draw(st.sampled_from(spots(tree)))
        if not way:
            return encoded(draw(values))
        place = tree
        for key in way[:-1]:
            place = place[key]
        what = draw(st.sampled_from(["replaced", "gone", "added", "swapped"]))
        if what == "gone":
            del place[way[-1]]
        elif what == "added" and isinstance(place, dict):
            place[draw(texts)] = draw(values)
        elif what == "added":
            place.append(draw(values))
        elif what == "swapped":
            taken = tree
            for key in draw(st.sampled_from(spots(tree))):
                taken = taken[key]
            place[way[-1]] = json.loads(json.dumps(taken))
        else:
            place[way[-1]] = draw(values)
    return encoded(tree)


def odd_answers(honest: Any) -> st.SearchStrategy[bytes]:
    return mutations(honest) | values.map(encoded) | st.binary(min_size=1, max_size=40)


def can_be_shown(found: HostReport) -> None:
    """To people, to programs, to Pulumi and to Ansible."""
    lines = list(report.host_lines("s", found))
    assert not [line for line in lines if CONTROLS.search(line) or "\n" in line]
    page = DriftPage("s", {found.host: "pool"})
    page.add(found)
    assert not CONTROLS.search(page.text().replace("\n", ""))
    page.text().encode()
    json.dumps(report.as_json("s", found)).encode()
    planned = host_plan(found, load_manifest("s", found.host) or Manifest(host=found.host))
    json.dumps(asdict(planned), allow_nan=False).encode()
    assert not [line for line in planned.lines if CONTROLS.search(line) or "\n" in line]
    "".join(planned.lines).encode()


ALONE: dict[str, HostReport] = {}


@given(odd_answers(SCAN_HONEST))
def test_a_scan_reports_every_node_whatever_one_of_them_says(odd: bytes) -> None:
    sealed_before()
    if not ALONE:
        ALONE.update(scanned(lambda _host: encoded(SCAN_HONEST)))
        assert {one.state for one in ALONE.values()} == {"drift"}
        assert {len(one.differences) for one in ALONE.values()} == {len(FOUND)}
    found = scanned(one_says(odd, SCAN_HONEST))
    assert set(found) == set(HOSTS)
    assert {name: one for name, one in found.items() if name != ODD} == {
        name: one for name, one in ALONE.items() if name != ODD
    }
    assert found[ODD].state in ("drift", "failed", "clean")
    assert (found[ODD].state == "failed") == bool(found[ODD].message)
    assert not UNFORESEEN.search(found[ODD].message), "read, not caught"
    can_be_shown(found[ODD])


def test_a_reader_that_pauses_makes_no_node_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def quick(_scanner: scan.Scanner, report: HostReport) -> None:
        await asyncio.sleep(0.05)
        report.message = "seen"

    looked, paused_s, loop, host = list[str](), 0.0, asyncio.new_event_loop(), scan.Scanner.host
    clock = loop.time

    async def counted(scanner: scan.Scanner, name: str) -> HostReport:
        report = await host(scanner, name)
        looked.append(name)
        return report

    monkeypatch.setattr(loop, "time", lambda: clock() + paused_s)
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loop)
    monkeypatch.setattr(scan.Scanner, "_scan", quick)
    monkeypatch.setattr(scan.Scanner, "host", counted)
    reports = scan._beside(scan._scan(scan.Scanner(CONTRACT, INPUTS), HOSTS, 2))
    found = [next(reports)]
    wait_for(lambda: len(looked) == len(HOSTS), "all to be looked at while nobody reads")
    paused_s = 2 * scan.HOST_LIMIT_S  # longer than a node may take
    found += list(reports)
    assert {one.host: (one.state, one.message) for one in found} == dict.fromkeys(HOSTS, ("clean", "seen"))


def interrupted_in(reports: Iterator[HostReport]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    next(reports)


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_scan_that_is_given_up_leaves_no_thread(monkeypatch: pytest.MonkeyPatch, interrupted: bool) -> None:
    async def endless(_scanner: scan.Scanner, report: HostReport) -> None:
        await asyncio.sleep(LIMIT_S if report.host != HOSTS[0] else 0)

    monkeypatch.setattr(scan.Scanner, "_scan", endless)
    before = set(threading.enumerate())
    reports = scan._beside(scan._scan(scan.Scanner(CONTRACT, INPUTS), HOSTS, 2))
    next(reports)
    if interrupted:
        usual = signal.signal(signal.SIGALRM, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            interrupted_in(reports)
        signal.signal(signal.SIGALRM, usual)
    reports.close()
    assert set(threading.enumerate()) <= before, "one of before may have ended meanwhile"


@cache
def steps_of(role: str) -> tuple[task_inputs.Known, ...]:
    """Read once: what a node says changes no role."""
    return tuple(READ_STEPS(role))


def seal_all(answers: Answer) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        answering(answers, patch)
        patch.setattr(task_inputs, "_known_steps", steps_of)
        hosts = {name: {"base": RECORD} for name in HOSTS}
        return asyncio.run(asyncio.wait_for(seal.seal_all("s", hosts), LIMIT_S))


@given(odd_answers(SEAL_HONEST), odd_answers(SEAL_HONEST))
def test_a_run_seals_every_other_node_whatever_one_of_them_says(first: bytes, second: bytes) -> None:
    for name in HOSTS:
        manifests.forget_host("s", name)
    for odd in (first, second):  # what was taken for true at first is there when the second is merged
        said = seal_all(one_says(odd, SEAL_HONEST))
        assert all(line.startswith(f"{ODD}: ") for line in said)
        assert not [line for line in said if UNFORESEEN.search(line) or CONTROLS.search(line)]
        for name in HOSTS:
            manifest = load_manifest("s", name)
            assert manifest is not None
            part = manifest.roles["base"]
            if name != ODD:
                assert {(entry.kind, entry.key) for entry in part.entries} == set(FOUND)
                assert part.sealed_at
            elif part.sealed_at is None:
                assert said
            plain = manifest.model_dump(mode="json")
            script(request_of(plain, entries_of(plain)))
            manifest.node_copy()


NESTED = b"[" * 200_000
HOSTILE: dict[str, bytes] = {
    "hangs at nothing": b'{"hangs": 999}\n',
    "hangs at a truth value": b'{"hangs": true}\n',
    "no values": b'{"machine": "m"}\n',
    "nothing found": b'{"machine": "m", "values": [[0, {}]]}\n',
    "a time that is none": b'{"machine": "m", "values": [[0, {"found": {"mode": "1"}, "since": 1e300}]]}\n',
    "no number": b'{"machine": "m", "values": [[0, {"found": {"mode": "1"}, "since": NaN}]]}\n',
    "an endless number": b'{"machine": "m", "values": [[0, {"found": {"mtu_bytes": 1e999}}]]}\n',
    "nested": NESTED + b"\n",
    "nested and closed": NESTED + b"]" * 200_000 + b"\n",
    "half a character": b'{"machine": "m", "values": [[4, {"found": {"names": ["\\udcff"]}}]]}\n',
    "a name that leads elsewhere": b'{"machine": "m", "values": [[4, {"found": {"names": ["../x"]}}]]}\n',
    "a list for a text": b'{"machine": "m", "values": [[0, {"found": {"type": []}}]]}\n',
    "a machine of a megabyte": encoded({"machine": "m" * 1_000_000, "values": []}),
    "no text": b"\xff\xfe\x00\n",
    "a banner": b"This account is not available.\x1b[2J\n",
}


@pytest.mark.parametrize("odd", HOSTILE.values(), ids=HOSTILE)
def test_an_answer_that_makes_no_sense_is_said_of_the_node(odd: bytes) -> None:
    sealed_before()
    found = scanned(one_says(odd, SCAN_HONEST))
    assert len(found) == len(HOSTS)
    assert (found[ODD].state, found[ODD].message[:33]) == ("failed", "the probe's answer makes no sense")
    assert len(found[ODD].message) <= 400
    can_be_shown(found[ODD])
    said = seal_all(one_says(odd, SEAL_HONEST))
    assert [line for line in said if line.startswith(f"{ODD}: not sealed: the probe's answer makes no sense")]


def test_what_nobody_foresaw_is_one_nodes_failure_too(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed_before()
    ask = trip.Trips.ask

    async def asked(trips: trip.Trips, way: Any, host: str, request: Any) -> dict[str, Any]:
        if host == ODD:
            raise LookupError("of a library\x1b[2J")
        if host == HOSTS[2]:
            raise asyncio.CancelledError  # as if the library had given up what was waited for
        return await ask(trips, way, host, request)

    monkeypatch.setattr(trip.Trips, "ask", asked)
    found = scanned(lambda _host: encoded(SCAN_HONEST))
    assert [found[name].state for name in HOSTS] == ["drift", "failed", "failed", "drift"]
    assert found[ODD].message == "LookupError: of a library\\x1b[2J"
    said = seal_all(lambda _host: encoded(SEAL_HONEST))
    assert f"{ODD}: not sealed: LookupError: of a library\\x1b[2J" in said
    unsealed = [line.split(":")[0] for line in said if ": not sealed: " in line]
    assert sorted(unsealed) == [ODD, HOSTS[2]], said


def test_a_manifest_that_cannot_be_read_keeps_no_other_node_from_being_sealed() -> None:
    for name in HOSTS:
        manifests.forget_host("s", name)
    manifests.manifest_path("s", ODD).write_text("{}")
    said = seal_all(lambda _host: encoded(SEAL_HONEST))
    assert len(said) == 1
    assert said[0].startswith(f"{ODD}: not sealed: ")
    assert all(load_manifest("s", name) for name in HOSTS if name != ODD)


def test_texts_that_are_too_long_or_too_many_are_not_compared_and_what_differs_is_named() -> None:
    sealed_before()
    most = TEXT_LIMIT_BYTES
    answer = json.loads(encoded(SCAN_HONEST))
    for _number, difference in answer["values"]:
        difference["text"] = "x" * most
    answer["values"][1][1]["text"] = "x" * (most + 1)
    found = scanned(one_says(encoded(answer), SCAN_HONEST))[ODD]
    shown = [difference.diff is not None for difference in found.differences]
    assert shown == [True, False, True, True, True, *[False] * (len(FOUND) - 5)]
    can_be_shown(found)


def numbered(count: int, between: tuple[int, ...] = ()) -> str:
    return "".join(f"{number}\n" + "new\n" * (number in between) for number in range(count))


def test_a_diff_has_a_hunk_per_change_and_one_in_all_where_that_takes_long() -> None:
    short = text_diff("/etc/x", numbered(3000), numbered(3000, (5, 2990)))
    assert [line for line in short.splitlines() if line.startswith("@@")] == [
        "@@ -5,4 +5,5 @@",
        "@@ -2990,4 +2991,5 @@",
    ]
    hard = "".join(f"{number}\nnew {number}\n" for number in range(4000))
    lines = text_diff("/etc/x", "head\n" + numbered(4000) + "tail\n", "head\n" + hard + "tail\n").splitlines()
    assert lines[:3] == ["--- sealed/etc/x", "+++ found/etc/x", "@@ -3,3999 +3,7999 @@"]
    assert len(lines) == 3 + 3999 + 7999


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")), st.booleans())
def test_a_diff_leads_from_one_text_to_the_other(old: list[str], new: list[str], quick: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not quick:
            patch.setattr(findings._Matcher, "steps", 0)
        lines = text_diff("/x", "\n".join(old), "\n".join(new)).splitlines()
    assert not lines or old != new
    at, made = 0, []
    for line in lines[2:]:
        if line.startswith("@@"):
            first, count = map(int, line.split()[1][1:].split(","))
            start = first - (count > 0)
            made += old[at:start]
            at = start
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert old[at] == line[1:]
            made += [line[1:]] * (line[0] == " ")
            at += 1
    assert made + old[at:] == new
