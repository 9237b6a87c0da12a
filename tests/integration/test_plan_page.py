"""The pages of `causeway plan`, `status` and `drift` as a browser shows them: wide, narrow, light, dark; and
how one that is served renews itself."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from itertools import combinations, count
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from infra.capabilities.monitoring.page import page as state_page
from infra.capabilities.monitoring.serve import PLACE, Fresh, Handler, Server, listen
from infra.capabilities.monitoring.state import Alert, RegionState, Way
from tests.unit.test_drift_page import page_of, site

PROVES = ("reliability", "monitoring")

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
PACKAGE = "chromium-headless-shell"
READABLE = 4.5
"""WCAG 2.2, 1.4.3: contrast of text with what is behind it."""
VISIBLE = 3.0
"""WCAG 2.2, 1.4.11: of a curve or a mark."""
LOOK = """<script>
const all = query => [...document.querySelectorAll(query)];
const edges = it => [it.left, it.top, it.right, it.bottom];
const box = node => edges(node.getBoundingClientRect());
const style = node => getComputedStyle(node);
all("details").forEach(node => { node.open = true; });
document.body.dataset.seen = JSON.stringify({
  width: [document.documentElement.scrollWidth, innerWidth],
  background: style(document.body).backgroundColor,
  texts: all("h1, h2, li, p, figcaption, td, th, caption, pre, summary, small, b, code").map(
    node => style(node).color),
  labels: all("svg").map(svg => [...svg.querySelectorAll("text")].map(
    node => ({text: node.textContent, box: box(node), colour: style(node).fill}))),
  moved: all("table").map(table => table.parentElement).filter(
    node => node.scrollWidth > node.clientWidth).map(node => node.textContent),
  pictures: all("svg").map(box),
  curves: all("polyline").map(node => ({box: box(node), colour: style(node).stroke})),
  marks: all("circle, rect").map(node => ({
    box: box(node), colour: style(node).fill === "none" ? style(node).stroke : style(node).fill})),
});
</script>"""
"""What the page itself has none of: asks the browser where everything is, and in which colour."""


@pytest.fixture(name="browser", scope="module")
def _browser() -> str:
    """A browser without a window; installed where the distribution has one as a package."""
    if not any(map(shutil.which, BROWSERS)):
        known = subprocess.run(["apt-cache", "show", PACKAGE], check=False, capture_output=True)
        if known.returncode:
            pytest.skip(f"this distribution has no package {PACKAGE}, and no browser is installed")
        install = f"ROOT={ROOT}; . toolchain/setup.sh; apt_install {PACKAGE}"
        subprocess.run(["bash", "-ec", install], cwd=ROOT, check=True)
    return next(filter(None, map(shutil.which, BROWSERS)))


@pytest.fixture(name="page", scope="module")
def _page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the 24,576-GPU example."""
    file = tmp_path_factory.mktemp("page") / "plan.html"
    words = ["plan", "examples/training-two-planes.yaml", "--html", str(file)]
    subprocess.run([sys.executable, "-m", "infra.cli", *words], cwd=ROOT, check=True)
    return file


def browsed(browser: str, folder: Path, *words: str) -> str:
    """The document as the browser has it after a page was read."""
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += [f"--user-data-dir={folder / 'profile'}", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def seen(browser: str, page: Path, folder: Path, scheme: str, width: int) -> dict[str, Any]:
    """What the browser shows of the page, in pixels from its upper left corner."""
    copy = folder / "seen.html"
    copy.write_text(page.read_text().replace("</html>", f"{LOOK}</html>"))
    preference = {"dark": 0, "light": 1}[scheme]
    options = [f"--blink-settings=preferredColorScheme={preference}", f"--window-size={width},2400"]
    said = browsed(browser, folder, *options, copy.as_uri())
    found = re.search(r'data-seen="([^"]*)"', said)
    assert found, said[-2000:]
    answer: dict[str, Any] = json.loads(unescape(found[1]))
    return answer


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2) of `rgb(r, g, b)`."""
    values = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in values)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def overlap(one: list[float], other: list[float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def ruins(regions: int, nodes: int) -> list[RegionState]:
    """Regions with all that may be wrong: nodes gone or different, alerts, a region that is not seen."""
    names = [f"region-{number}" for number in range(regions)]
    hosts = tuple(f"gpu-{number}" for number in range(nodes))
    alert = Alert("NodeGone", "ticket", names[0], hosts[0], "It does not answer.", "./run up", "x", "now")
    page = replace(alert, severity="page", name="RegionCutOff", summary="No WAN link answers. " * 5)
    points = [(60.0 * minute, 0.5 + 0.4 * (minute % 7) / 7) for minute in range(180)]
    good = [
        RegionState(
            name,
            f"{name}-control-0",
            nodes,
            hosts=hosts,
            gone=hosts[::9] if number else (),
            drifted=dict.fromkeys(hosts[1::11], 3),
            alerts=(page, alert) if number == 1 else (),
            ways=tuple(Way(other, 71.5, 0.004, 70, 0.004) for other in names if other != name),
            history={"share of the processors' time": points},
        )
        for number, name in enumerate(names)
    ]
    return [*good[:-1], replace(good[-1], problem="it cannot be asked")] if regions > 2 else good


@pytest.fixture(name="state", params=[(1, 1), (2, 4), (4, 30), (3, 1250)], ids=str)
def _state(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A page of the state of so many regions with so many nodes each."""
    file = tmp_path / "state.html"
    file.write_text(state_page("pacific", "site", ruins(*request.param)))
    return file


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 500])
def test_a_state_is_readable(browser: str, state: Path, tmp_path: Path, scheme: str, width: int) -> None:
    readable(seen(browser, state, tmp_path, scheme, width), scheme)


@pytest.mark.parametrize("width", [1280, 500])
def test_the_labels_of_a_state_stand_apart(browser: str, state: Path, tmp_path: Path, width: int) -> None:
    found = seen(browser, state, tmp_path, "light", width)
    for picture, labels in zip(found["pictures"], found["labels"], strict=True):
        for label in labels:
            assert inside(label["box"], picture), label["text"]
        for one, other in combinations(labels, 2):
            assert not overlap(one["box"], other["box"]), f"{one['text']} hides {other['text']}"
    for mark in found["marks"]:
        assert any(inside(mark["box"], picture) for picture in found["pictures"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 500])
@pytest.mark.parametrize("nodes", [8, 1250])
def test_drift_is_readable(browser: str, tmp_path: Path, nodes: int, scheme: str, width: int) -> None:
    file = tmp_path / "drift.html"
    file.write_text(page_of(site(nodes)), encoding="utf-8")
    found = seen(browser, file, tmp_path, scheme, width)
    readable(found, scheme)
    assert len(found["texts"]) > 50
    assert found["moved"] == [], "every table fits as well"


class Renewed(Fresh):
    """Looks whenever it is asked, until so many answers were given."""

    most = 100

    def text(self) -> str:
        if self.most == 0:
            raise OSError("gone")
        self.most -= 1
        self.again()
        return super().text()


@pytest.fixture(name="served")
def _served() -> Iterator[tuple[Renewed, Server]]:
    numbers = count(1)
    fresh = Renewed(lambda: (state_page(f"look-{next(numbers)}", "s", ruins(2, 4), top=PLACE), ""), 2)
    servers = listen(fresh, 0)
    Thread(target=servers[0].serve_forever, daemon=True).start()
    yield fresh, servers[0]
    servers[0].shutdown()
    for server in servers:
        server.server_close()


def looked_at(browser: str, server: Server, folder: Path) -> str:
    """What stands on a served page after seven seconds of the browser's time."""
    return browsed(browser, folder, "--virtual-time-budget=7000", f"http://127.0.0.1:{server.port}/")


def test_a_served_page_renews_itself_and_is_never_loaded_anew(
    browser: str, served: tuple[Renewed, Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    answer = Handler.do_GET

    def do_get(handler: Handler) -> None:
        loads.append(handler.headers.get("Sec-Fetch-Dest", ""))
        answer(handler)

    monkeypatch.setattr(Handler, "do_GET", do_get)
    text = looked_at(browser, served[1], tmp_path)
    shown = re.search(r"<h1>Cluster look-(\d+),", text)
    assert shown
    assert int(shown[1]) >= 3
    assert re.search(r"Seen <b>[0-2] s</b> ago", text)
    assert 'class="wrong"' not in text
    assert loads.count("document") == 1
    assert "empty" in loads


def test_a_page_whose_server_is_gone_stays_and_says_so(
    browser: str, served: tuple[Renewed, Server], tmp_path: Path
) -> None:
    served[0].most = 1
    text = looked_at(browser, served[1], tmp_path)
    assert "<h1>Cluster look-1," in text
    assert re.search(r"Seen <b>[5-7] s</b> ago", text)
    assert 'class="wrong"' in text
    assert "Nothing answers any more" in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_is_readable(browser: str, page: Path, tmp_path: Path, scheme: str, width: int) -> None:
    readable(seen(browser, page, tmp_path, scheme, width), scheme)


def readable(found: dict[str, Any], scheme: str) -> None:
    """Whether all that is written and drawn stands out, and the page is no wider than the window."""
    assert (luminance(found["background"]) < 0.1) == (scheme == "dark")
    assert found["width"][0] <= found["width"][1], "the page itself is not moved sideways"
    for colour in {*found["texts"], *(label["colour"] for labels in found["labels"] for label in labels)}:
        assert contrast(colour, found["background"]) >= READABLE
    for drawn in (*found["curves"], *found["marks"]):
        assert contrast(drawn["colour"], found["background"]) >= VISIBLE


@pytest.mark.parametrize("width", [1280, 500])
def test_labels_and_curves_stand_in_their_picture(
    browser: str, page: Path, tmp_path: Path, width: int
) -> None:
    found = seen(browser, page, tmp_path, "light", width)
    assert len(found["pictures"]) == len(found["curves"]) == 2
    for picture, labels, curve in zip(found["pictures"], found["labels"], found["curves"], strict=True):
        assert labels
        for label in labels:
            assert inside(label["box"], picture), label["text"]
            assert not overlap(label["box"], curve["box"]), f"{label['text']} stands in the curve"
        for one, other in combinations(labels, 2):
            assert not overlap(one["box"], other["box"]), f"{one['text']} hides {other['text']}"
        assert inside(curve["box"], picture)
        assert curve["box"][2] - curve["box"][0] > 0.8 * (picture[2] - picture[0]), "over the whole width"
    for mark in found["marks"]:
        assert any(overlap(mark["box"], curve["box"]) for curve in found["curves"]), "on a curve"


def inside(one: list[float], other: list[float]) -> bool:
    return other[0] <= one[0] and other[1] <= one[1] and one[2] <= other[2] and one[3] <= other[3]
