"""`causeway status --serve`: a page that renews itself, for this machine only."""

import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.capabilities.monitoring import commands, serve, state
from infra.capabilities.monitoring.page import page
from infra.capabilities.monitoring.serve import OURS, PLACE, Fresh, Server, is_ours, listen
from infra.capabilities.monitoring.state import RegionState
from infra.cli import main
from infra.errors import CausewayError, ExitCode
from tests.unit.test_monitoring import answers, chain

ROOT = Path(__file__).resolve().parents[2]
DOWN = "r0-control-0 cannot be asked: <b>no route</b>"


class Looks:
    """What look after look finds: a page with its number, an error, or why an older one is better."""

    def __init__(self) -> None:
        self.number, self.error, self.wrong = 0, Exception(), ""

    def __call__(self) -> tuple[str, str]:
        self.number += 1
        if type(self.error) is not Exception:
            raise self.error
        region = RegionState("tokyo", "tokyo-control-0", 1, hosts=(f"look-{self.number}",))
        return page("pacific", "s", [region], top=PLACE), self.wrong


@pytest.fixture(name="looks")
def _looks() -> Looks:
    return Looks()


@pytest.fixture(name="fresh")
def _fresh(looks: Looks) -> Fresh:
    return Fresh(looks, 10)


@pytest.fixture(name="servers")
def _servers(fresh: Fresh) -> Iterator[list[Server]]:
    servers = listen(fresh, 0)
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in servers]
    for thread in threads:
        thread.start()
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()
    for thread in threads:
        thread.join()


def asked(port: int, path: str = "/", method: str = "GET", host: str = "localhost") -> tuple[int, str]:
    """Status and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request(method, path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_the_last_page_is_served_with_its_age(
    fresh: Fresh, servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = servers[0].port
    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    assert "No look has come back yet" in asked(port)[1]
    fresh.again()
    status, text = asked(port)
    assert status == 200
    assert "look-1: good" in text
    assert PLACE not in text
    assert 'data-age="0"' in text
    fresh.last = type(fresh.last)(fresh.last.page, fresh.last.at - 100)
    assert "Seen <b>100 s</b> ago; looked at again every 10 s." in asked(port)[1]
    fresh.again()
    assert "look-2: good" in asked(port)[1]


def test_the_page_runs_its_own_script_and_loads_nothing(fresh: Fresh, servers: list[Server]) -> None:
    fresh.again()
    with closing(http.client.HTTPConnection("localhost", servers[0].port, timeout=30)) as connection:
        connection.request("HEAD", "/")
        answer = connection.getresponse()
        assert answer.status == 200
        assert int(answer.headers["Content-Length"]) == len(asked(servers[0].port)[1].encode())
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"
    with socket.create_connection(("127.0.0.1", servers[0].port), timeout=30) as plain:
        plain.sendall(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert plain.makefile("rb").read().endswith(b"\r\n\r\n"), "no page follows"


def test_every_address_is_this_machines_own(servers: list[Server]) -> None:
    for server in servers:
        assert server.socket.getsockname()[0] in ("127.0.0.1", "::1")
        assert server.port == servers[0].port


def test_there_is_one_page(fresh: Fresh, servers: list[Server]) -> None:
    fresh.again()
    port = servers[0].port
    for path in ("/x", "/?x", "/../etc/passwd", "/x/", "http://localhost/", "*"):
        assert asked(port, path)[0] == 404, path
    assert asked(port, method="POST")[0] == 501


def test_who_calls_it_by_a_foreign_name_gets_nothing(fresh: Fresh, servers: list[Server]) -> None:
    fresh.again()
    port = servers[0].port
    for host in ("localhost", f"127.0.0.1:{port}", "[::1]:1", "LOCALHOST:8642"):
        assert asked(port, host=host)[0] == 200, host
    for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "localhost:x", "", "::1"):
        for path in ("/", "/x"):
            status, text = asked(port, path, host=host)
            assert status == 403, host
            assert "look-1" not in text
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b" 403 " in plain.makefile("rb").readline()
        plain.close()


NAMED = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?", re.IGNORECASE | re.ASCII)


@given(st.text() | st.builds(str.__add__, st.sampled_from(OURS), st.text() | st.from_regex(":[0-9]*.?")))
def test_only_our_names_are_ours(name: str) -> None:
    assert is_ours([name]) == bool(NAMED.fullmatch(name))
    assert not is_ours([name, name])


@pytest.mark.parametrize(
    "error", [CausewayError(DOWN), ValueError(DOWN), KeyError(DOWN), RecursionError(DOWN)]
)
def test_where_a_look_fails_the_last_page_stays_and_says_so(
    looks: Looks, fresh: Fresh, error: Exception
) -> None:
    looks.error = error
    fresh.again()
    assert "&lt;b&gt;no route" in fresh.text(), "the first one"
    looks.error = Exception()
    fresh.again()
    assert 'class="wrong"' not in fresh.text()
    looks.error = error
    fresh.again()
    text = fresh.text()
    assert "look-2: good" in text
    assert 'class="wrong"' in text
    assert "The last look failed: " in text
    assert "&lt;b&gt;no route" in text
    looks.error = Exception()
    fresh.again()
    assert "look-4: good" in fresh.text()
    assert "failed" not in fresh.text()


def test_a_page_on_which_nothing_is_seen_takes_no_place_of_a_better_one(looks: Looks, fresh: Fresh) -> None:
    looks.wrong = DOWN
    fresh.again()
    assert "look-1: good" in fresh.text(), "there is none before it"
    fresh.again()
    assert "look-1: good" in fresh.text()
    assert "The last look failed: r0-control-0" in fresh.text()


def test_a_region_that_is_not_seen_is_news_and_all_of_them_are_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = {"r0-control-0"}

    def ask(_contract: object, server: str, _history: bool) -> object:
        if server in silent:
            raise CausewayError("no route")
        return answers()

    monkeypatch.setattr(state, "_ask", ask)
    monkeypatch.setattr(commands, "load_contract", lambda _path: chain(2))
    text, wrong = commands.look("s")
    assert "r0: not seen" in text
    assert wrong == ""
    silent.add("r1-control-0")
    _, wrong = commands.look("s")
    assert wrong == "r0-control-0 cannot be asked: no route; r1-control-0 cannot be asked: no route"


def test_many_ask_while_looks_go_on(fresh: Fresh, servers: list[Server]) -> None:
    fresh.again()
    with ThreadPoolExecutor(16) as several:
        found = [several.submit(asked, servers[0].port) for _ in range(64)]
        for _ in range(20):
            fresh.again()
        for answer in (one.result() for one in found):
            assert answer[0] == 200
            assert answer[1].count("look-") == 1, "a whole page of one look"
            assert answer[1].endswith("</html>\n")


def test_a_browser_that_goes_away_disturbs_nobody(
    fresh: Fresh, servers: list[Server], capfd: pytest.CaptureFixture[str]
) -> None:
    fresh.again()
    for said in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\xff\x00\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", servers[0].port), timeout=30) as plain:
            plain.sendall(said)
    assert asked(servers[0].port)[0] == 200
    assert capfd.readouterr().err == ""


def test_a_port_that_somebody_has_is_said(fresh: Fresh, servers: list[Server]) -> None:
    port = servers[0].port
    with pytest.raises(CausewayError, match=f"port {port} of 127.0.0.1 .* another program has it") as caught:
        listen(fresh, port)
    assert "--serve PORT" in caught.value.hint


def test_a_port_that_is_taken_on_one_address_is_taken(fresh: Fresh) -> None:
    try:
        other = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with other:
        port = other.getsockname()[1]
        with pytest.raises(CausewayError, match=f"port {port} of ::1"):
            listen(fresh, port)
        with socket.create_server(("127.0.0.1", port)):
            pass  # it was given back


@pytest.mark.parametrize("other", [["--json"], ["--html", "x"]])
def test_what_contradicts_is_refused(
    other: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(commands, "load_contract", lambda _path: chain(1))
    for words in (["--serve", "0", *other], [*other, "--serve"]):
        with pytest.raises(SystemExit) as ended:
            main(["status", "s", *words])
        assert ended.value.code == ExitCode.BAD_INPUT
        assert f"argument --serve: not allowed with argument {other[0]}" in capsys.readouterr().err
    for port in ("x", "-1", "65536"):
        with pytest.raises(SystemExit):
            main(["status", "s", f"--serve={port}"])
        assert "invalid port value" in capsys.readouterr().err


HANGS = """
import sys, time
from infra.capabilities.monitoring import commands, state
from infra.cli import main
from tests.unit.test_monitoring import chain
commands.load_contract = lambda path: chain(2)
state._ask = lambda *words: print("asked", flush=True) or time.sleep(1000)
sys.exit(main(["status", "s", *sys.argv[1:]]))
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--serve", "0", "--watch", "2"], ExitCode.OK),
        (["--watch", "2"], ExitCode.OK),
        ([], ExitCode.FAILED),
    ],
    ids=str,
)
def test_an_interrupt_waits_for_no_region(words: list[str], code: ExitCode) -> None:
    command = [sys.executable, "-c", HANGS, *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout
            said = ""
            while said.count("asked") < 2:
                line = process.stdout.readline()
                assert line, process.stderr and process.stderr.read()
                said += line
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == code
    assert "Traceback" not in err
    if "--serve" in words:
        assert "http://localhost:" in said + out
        assert "again every 2 s" in said + out
