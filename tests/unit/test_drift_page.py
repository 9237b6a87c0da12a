"""The page of a scan: how much first, one row for one finding, and no markup but its own."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.cli import main
from infra.commands import drift as command
from infra.drift import report
from infra.drift.findings import Difference, HostReport, RoleReport, moment, text_diff
from infra.drift.page import MOST_DIFFS, MOST_WAYS, DriftPage, write_page
from infra.errors import HARMFUL, CausewayError, ExitCode
from tests.unit.test_monitoring import chain

HOSTS = [f"{region}-gpu-{number}" for region in ("osaka", "tokyo") for number in range(625)]
MOMENT = moment(1.8e9)


def differs(key: str = "/etc/hosts", role: str = "base", **changes: Any) -> Difference:
    values: dict[str, Any] = {
        "role": role,
        "task": "Write it",
        "kind": "file",
        "key": key,
        "expected": {"digest": "a"},
        "found": {"digest": "b"},
        "since": MOMENT,
        "diff": text_diff(key, "one\n", "two\n"),
    }
    return Difference(**(values | changes))


def host(name: str, *differences: Difference, state: Any = None, message: str = "") -> HostReport:
    roles = {role: RoleReport("clean") for role in ("base", "tcp_tuning")}
    for one in differences:
        roles.setdefault(one.role, RoleReport("drift")).differences.append(one)
        roles[one.role].state = "drift"
    found = HostReport(name, name.partition("-")[0], state or ("drift" if differences else "clean"), roles)
    found.message = message
    return found


def page_of(reports: Sequence[HostReport], roles: Sequence[str] = ()) -> str:
    page = DriftPage("local", {one.host: one.host.rpartition("-")[0] for one in reports}, roles)
    for one in reports:
        page.add(one)
    return page.text()


def site(nodes: int) -> list[HostReport]:
    """So many nodes in two regions with all that may be found, each of it on the same share of them."""
    half = nodes // 2
    names = [f"{region}-gpu-{number}" for region in ("osaka", "tokyo") for number in range(half)]
    sshd = "/etc/ssh/sshd_config.d/50-causeway.conf"
    reports = []
    for number, name in enumerate(names):
        found: list[Difference] = []
        if number % 8 == 7:
            why = "no answer within 10 s, twice" if number % 16 == 7 else "No route to host"
            reports.append(host(name, state="unreachable", message=why))
            continue
        if number % 8:
            found.append(differs(sshd, diff=text_diff(sshd, "PermitRootLogin no\n", "PermitRootLogin yes\n")))
        if number % 4 == 1:
            found.append(
                differs("/etc/hosts", diff=text_diff("/etc/hosts", "a\n", f"10.0.0.{number} {name}\n"))
            )
        if number % 4 == 2:
            sealed, seen = {"active": "active"}, {"active": "failed"}
            found.append(differs("chrony.service", kind="unit", expected=sealed, found=seen, diff=None))
        if number % 8 == 3:
            names_of = {"names": [f"somebody-{number}-{'long' * 30}.conf"]}
            added = {"expected": {"names": []}, "found": names_of, "kind": "listing", "diff": None}
            found.append(differs("/etc/sysctl.d", "tcp_tuning", **added))
        reports.append(host(name, *found))
        if number % 8 == 4:
            reports[-1].roles["roce"] = RoleReport("stale", notes=["what it depends on changed since"])
            reports[-1].roles["tcp_tuning"].uncovered = ["Load a module", "Set a clock"]
    return reports


def rows(text: str) -> list[list[str]]:
    """The texts of all cells of all rows."""
    return [
        [re.sub(r"<[^>]*>", " ", cell) for cell in re.findall(r"<td>(.*?)</td>", row, re.DOTALL)]
        for row in text.split("<tr>")
    ]


def test_one_finding_on_many_nodes_is_one_row_with_ranges() -> None:
    text = page_of([host(name, differs()) for name in HOSTS])
    (row,) = [row for row in rows(text) if row and "/etc/hosts" in row[0]]
    assert "its content differs" in row[1]
    assert " ".join(row[2].split()) == "1,250 osaka-gpu-0…624, tokyo-gpu-0…624"
    assert text.count("-one") == 1
    assert len(text) < 6000


@pytest.mark.parametrize("nodes", [8, 1250])
def test_the_summary_comes_first_and_counts_what_the_terminal_counts(nodes: int) -> None:
    reports = site(nodes)
    text, summary = page_of(reports), report.Summary()
    for one in reports:
        summary.add(one)
    assert text.index(summary.headlines()[0]) < text.index("What differs")
    counted = {row[0]: row[1:] for row in rows(text[: text.index("What differs")]) if row}
    of_tokyo = [one for one in reports if one.region == "tokyo"]
    for name in ("tokyo", "tokyo-gpu"):
        states = [sum(one.state == state for one in of_tokyo) for state in sorted(summary.states)]
        numbers = [len(of_tokyo), *states, sum(len(one.differences) for one in of_tokyo)]
        assert counted[name] == [f"{number:,}" for number in numbers]
    for what, name in (("kind", "unit"), ("kind", "file"), ("role", "base"), ("role", "tcp_tuning")):
        found = [[getattr(d, what) for d in one.differences].count(name) for one in reports]
        assert counted[name] == [f"{sum(found):,}", f"{len([n for n in found if n]):,}"], name


@pytest.mark.parametrize("nodes", [8, 1250])
def test_parts_stand_in_the_order_in_which_they_matter(nodes: int) -> None:
    text = page_of(site(nodes))
    parts = [
        "What differs",
        "stale, not sealed or orphaned",
        "could not be scanned",
        "Clean nodes:",
        "--check",
    ]
    places = [text.rindex(part) for part in parts]
    assert places == sorted(places)
    assert re.findall(r"<summary>Clean nodes: [\d,]+<", text)
    assert "no answer within 10 s, twice" in text[places[2] :]
    assert len(text) < 60_000, "grows with what differs and not with nodes"


def test_what_differs_on_most_nodes_comes_first() -> None:
    few, many = differs("/a"), differs("/z")
    text = page_of([host("t-1", few), host("t-2", many), host("t-3", many)])
    assert text.index("file /z") < text.index("file /a")


def test_one_thing_that_differs_everywhere_otherwise_is_folded() -> None:
    def of(number: int) -> Difference:
        return differs("/etc/x.d", kind="listing", expected={"names": []}, found={"names": [f"own-{number}"]})

    text = page_of([host(f"t-{number}", of(number)) for number in range(100)])
    found = [row for row in rows(text) if row and "/etc/x.d" in row[0]]
    assert len(found) == MOST_WAYS + 1
    assert f"in {100 - MOST_WAYS} more ways" in found[-1][1]
    assert all(f"own-{number}" in text for number in range(100))


def test_texts_that_differ_otherwise_on_every_node_are_shown_of_a_few() -> None:
    reports = [host(f"t-{number}", differs(diff=f"+{number:03}")) for number in range(100)]
    text = page_of(reports)
    assert text.count("<pre>") == MOST_DIFFS
    assert f"of {100 - MOST_DIFFS} more: causeway drift --host NODE" in text


def test_a_thing_says_whose_it_is_since_when_and_how_all_is_repaired() -> None:
    text = page_of([host("t-1", differs(since="2026-01-01")), host("t-2", differs(since="2026-02-02"))])
    assert "base, task “Write it”; since 2026-01-01 to 2026-02-02" in text
    assert "ansible-playbook playbooks/repair.yml -i inventories/local</code>" in text
    clean = page_of([host("t-1")])
    assert "repair.yml" not in clean
    assert "What differs" not in clean
    assert "1 nodes: 1 clean; 0 differences" in clean


def test_a_scan_of_some_roles_says_so() -> None:
    assert "Looked at only: base, roce." in page_of([host("t-1")], ["base", "roce"])
    assert "Looked at only" not in page_of([host("t-1")])


class Tags(HTMLParser):
    """The tags of a page, with what stands in them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, Any]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        self.seen.append((f"/{tag}", None))

    def handle_comment(self, data: str) -> None:
        self.seen.append(("!", data))

    def handle_pi(self, data: str) -> None:
        self.seen.append(("?", data))

    def unknown_decl(self, data: str) -> None:
        self.seen.append(("[", data))


MARKUP = st.sampled_from(
    [
        "<script>x</script>",
        "</pre>",
        "</title>",
        "<!--",
        "--><b",
        "'\" onload=x",
        "&lt;",
        "]]>",
        "<?x",
        "\x1b[2J",
    ]
)
HOSTILE = st.lists(MARKUP | st.text(st.characters(exclude_categories=())), min_size=1).map("".join)


def everywhere(text: str) -> str:
    """A page in which every text is this one."""
    seen = Difference(text, text, "listing", text, {"names": []}, {"names": [text]}, text, f"+{text}")
    roles = {text: RoleReport("drift", [seen], [text]), f"{text}2": RoleReport("stale", notes=[text])}
    reports = [
        HostReport(text, text, "drift", roles),
        HostReport(text, text, "failed", message=text),
        HostReport(text, text, "clean"),
    ]
    page = DriftPage(text, {text: text}, [text])
    for one in reports:
        page.add(one)
    return page.text()


@given(HOSTILE.filter(str))
def test_no_text_becomes_markup(text: str) -> None:
    page = everywhere(text)
    assert Tags(page).seen == Tags(everywhere("x")).seen
    assert not HARMFUL.search(page)
    page.encode()


def test_the_page_is_written_behind_the_last_report(tmp_path: Path) -> None:
    file = tmp_path / "drift.html"
    page = DriftPage("local", {"t-1": "t"})
    passed = list(write_page(file, page, iter([host("t-1", differs())])))
    assert [one.host for one in passed] == ["t-1"]
    assert file.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_command_writes_the_page_and_says_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    contract = chain(2)
    found = [host(name, *([differs()] if "gpu" in name else [])) for name in contract.hosts]
    monkeypatch.setattr(command, "load_contract", lambda _path: contract)
    monkeypatch.setattr(command, "scan_stack", lambda *_words, **_more: iter(found))
    assert main(["drift", "s", "--html", str(tmp_path / "drift.html")]) == ExitCode.DRIFT
    text = (tmp_path / "drift.html").read_text(encoding="utf-8")
    assert {"r0-gpu", "r1-control"} <= {row[0] for row in rows(text) if row}
    assert "10 nodes: 6 clean, 4 drift; 4 differences" in text
    assert "10 nodes: 6 clean, 4 drift; 4 differences" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_said_before_anything_is_scanned(tmp_path: Path) -> None:
    def scan() -> Any:
        raise AssertionError("scanned")
        yield

    with pytest.raises(CausewayError, match=r"none/drift\.html cannot be written: No such file"):
        list(write_page(tmp_path / "none" / "drift.html", DriftPage("local", {}), scan()))
