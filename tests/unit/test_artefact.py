"""A large file from node to node: only what has the controller's checksum is installed, whatever happens.

Module and plugin are run by real Ansible on this machine, loaded once; the server, a unit on nodes, is a
process here.
"""

import functools
import getpass
import hashlib
import http.server
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import files
from infra.cached import Cached
from tests.loaded import load
from tests.patience import wait_for

ROOT = Path(__file__).resolve().parents[2]
ROLE = ROOT / "roles" / "artefact"
CONTENT = os.urandom(1 << 20) * 20
"""More than one piece of the controller's."""
SHA256 = hashlib.sha256(CONTENT).hexdigest()
TIMEOUT_S = 120
ANSIBLE = """
import json, os, signal, sys
from ansible.cli.adhoc import AdHocCLI
from ansible.plugins.strategy import linear  # each run looks for it, and for what it needs itself
for line in sys.stdin:
    words, cache, output, timeout_s = json.loads(line)
    if not (run := os.fork()):
        os.environ["CAUSEWAY_CACHE"] = cache
        signal.alarm(timeout_s)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        AdHocCLI.cli_executor(words)
    print(os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]), flush=True)
"""
"""Half of what `ansible` takes is to load itself: runs are copies of one process that has done so."""
Ansible = Callable[[list[str], Path, Path], int]


@pytest.fixture(scope="module")
def ansible() -> Iterator[Ansible]:
    """`ansible WORDS`, with a cache, and with a file for what it prints; its exit status."""
    settings = {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STRATEGY": "linear",
        "ANSIBLE_LIBRARY": str(ROLE / "library"),
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-c", ANSIBLE], env=os.environ | settings, cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as loaded:  # fmt: skip
        asked, ended = loaded.stdin, loaded.stdout
        assert asked
        assert ended

        def run(words: list[str], cache: Path, output: Path) -> int:
            print(json.dumps([words, str(cache), str(output), TIMEOUT_S]), file=asked, flush=True)
            return int(ended.readline())

        yield run
        asked.close()


class Node:
    """A folder that is the node's, a file that is the controller's."""

    def __init__(self, folder: Path, ansible: Ansible) -> None:
        self.ansible = ansible
        self.folder, self.source = folder, folder / "controller" / "program"
        self.dest = folder / "node" / "program"
        self.part = self.dest.with_name(f".program.{SHA256[:16]}.part")
        for file in (self.source, self.dest):
            file.parent.mkdir()
        self.source.write_bytes(CONTENT)

    def bring(self, *options: str, fails: bool = False, **more: Any) -> dict[str, Any]:
        """What the task says."""
        asked = {"src": str(self.source), "dest": str(self.dest), "owner": getpass.getuser(), "mode": "0750"}
        said = self.folder / "said"  # by host
        words = ["ansible", "localhost", "-c", "local", "-i", "localhost,", "-t", str(said), *options]
        words += ["-m", "causeway_artefact", "-a", json.dumps(asked | more)]
        printed = self.folder / "printed"
        status = self.ansible(words, self.folder / "cache", printed)
        assert (status != 0) == fails, printed.read_text()
        return {"output": printed.read_text()} if fails else json.loads((said / "localhost").read_text())

    def left(self) -> list[str]:
        return sorted(file.name for file in self.dest.parent.iterdir())


@pytest.fixture
def node(tmp_path: Path, ansible: Ansible) -> Node:
    return Node(tmp_path, ansible)


@contextmanager
def handed_on(folder: Path, content: bytes = CONTENT, idle_s: float = 60) -> Iterator[str]:
    """The role's own server, at a URL that claims to have what the controller wants."""
    file, port_file = folder / "handed-on", folder / "port"
    file.write_bytes(content)
    port_file.unlink(missing_ok=True)
    words = [sys.executable, "-c", (ROLE / "files" / "causeway_artefact_serve.py").read_text(), "127.0.0.1"]
    with file.open("rb") as stream:
        server = subprocess.Popen([*words, SHA256, str(idle_s), str(port_file)], stdin=stream)
    try:
        wait_for(port_file.exists, "its port")
        yield f"http://127.0.0.1:{port_file.read_text()}/{SHA256}"
    finally:
        server.kill()
        server.wait()


def answers(host: str) -> bool:
    """Whether anybody listens there; no request, which would keep it there."""
    name, _, port = host.partition(":")
    with socket.socket() as knock:
        return knock.connect_ex((name, int(port))) == 0


class Dying(http.server.BaseHTTPRequestHandler):
    """Gives some of it, and is gone: a node that is killed midway."""

    def __init__(self, some: bytes, *arguments: Any) -> None:
        self.some = some
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(self.some)
        self.wfile.flush()

    def log_message(self, *words: Any) -> None:
        pass


@contextmanager
def dying(some: bytes) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Dying, some))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/{SHA256}"
    finally:
        server.shutdown()
        server.server_close()


class Site(http.server.BaseHTTPRequestHandler):
    """A mirror, and a proxy that knows the way to it; both note what they were asked."""

    def __init__(self, has: bytes, asked: list[str], *arguments: Any) -> None:
        self.has, self.asked = has, asked
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if not self.path.endswith(f"/programs/{SHA256}"):
            self.send_error(404)
            return
        first = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        self.send_response(206)
        self.send_header("Content-Length", str(len(self.has) - first))
        self.end_headers()
        self.wfile.write(self.has[first:])

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        name, _, port = self.path.partition(":")
        with socket.create_connection((name, int(port))) as far:
            self.send_response(200)
            self.end_headers()
            threading.Thread(target=relay, args=(self.connection, far), daemon=True).start()
            relay(far, self.connection)

    def log_message(self, *words: Any) -> None:
        pass


def relay(source: socket.socket, target: socket.socket) -> None:
    while block := source.recv(1 << 16):
        target.sendall(block)


@contextmanager
def site(has: bytes = CONTENT, certificate: Path | None = None) -> Iterator[tuple[str, list[str]]]:
    """Where it is, without `http://`; and what it was asked so far."""
    asked: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Site, has, asked))
    if certificate is not None:
        trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trusted.load_cert_chain(certificate)
        server.socket = trusted.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A mirror's certificate, with its key, which nobody else signed."""
    file = tmp_path / "mirror.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    words += ["-subj", "/CN=mirror", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*words, "-keyout", str(file), "-out", f"{file}.crt"], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


def test_the_sites_mirror_is_asked_before_the_controller_and_after_other_nodes(node: Node) -> None:
    with site() as (host, asked), handed_on(node.folder) as url:
        mirror = {"url": f"http://{host}/programs/"}
        assert node.bring(urls=[url], mirror=mirror)["sent"] == 0
        assert asked == [], "a node of the region has it"
        node.dest.unlink()
        node.part.write_bytes(CONTENT[:5_000_000])
        found = node.bring(mirror=mirror)
    assert (found["changed"], found["sent"], found["why"]) == (True, 0, [])
    assert asked == [f"/programs/{SHA256}"]
    assert node.dest.read_bytes() == CONTENT


def test_a_mirror_that_lacks_it_or_has_another_is_named_and_the_controller_brings_it(node: Node) -> None:
    with site(CONTENT[::-1]) as (host, _):
        for folder, why in (("empty", "it answers 404"), ("programs", "refused, its sha256 is")):
            found = node.bring(mirror={"url": f"http://{host}/{folder}"})
            assert found["sent"] == len(CONTENT)
            assert found["why"][0].startswith(f"http://{host}/{folder}/{SHA256}: {why}")
            node.dest.unlink()


def test_a_mirror_has_the_declared_authoritys_certificate_or_is_not_believed(
    node: Node, certificate: Path
) -> None:
    with site(certificate=certificate) as (host, _):
        mirror = {"url": f"https://{host}/programs"}
        found = node.bring(mirror=mirror)
        assert found["sent"] == len(CONTENT)
        assert "CERTIFICATE_VERIFY_FAILED" in found["why"][0]
        node.dest.unlink()
        authority = Path(f"{certificate}.crt")
        assert node.bring(mirror=mirror | {"ca_file": str(authority)})["sent"] == 0
    assert node.dest.read_bytes() == CONTENT


def test_a_mirror_behind_a_proxy_is_asked_by_it(node: Node, certificate: Path) -> None:
    authority = {"ca_file": f"{certificate}.crt"}
    with site() as (proxy, asked), site(certificate=certificate) as (host, _):
        by = {"proxy": f"http://{proxy}"}
        url = "http://mirror.invalid/programs"  # a name that the proxy alone may know
        assert node.bring(mirror={"url": url} | by)["sent"] == 0
        node.dest.unlink()
        assert node.bring(mirror={"url": f"https://{host}/programs"} | by | authority)["sent"] == 0
    assert asked == [f"{url}/{SHA256}", host]
    assert node.dest.read_bytes() == CONTENT


def test_it_comes_from_the_controller_once_and_then_nothing_does(node: Node) -> None:
    first = node.bring()
    assert (first["changed"], first["sent"]) == (True, len(CONTENT))
    assert node.dest.read_bytes() == CONTENT
    assert node.dest.stat().st_mode & 0o777 == 0o750
    assert node.left() == ["program"]
    again = node.bring()
    assert (again["changed"], again["sent"]) == (False, 0)


def test_it_comes_from_a_node_that_has_it_and_nothing_from_the_controller(node: Node) -> None:
    with handed_on(node.folder) as url:
        found = node.bring(urls=[url])
    assert (found["changed"], found["sent"], found["why"]) == (True, 0, [])
    assert node.dest.read_bytes() == CONTENT


def test_when_a_node_dies_midway_the_rest_comes_from_another(node: Node) -> None:
    with dying(CONTENT[:3_000_000]) as gone, handed_on(node.folder, CONTENT) as url:
        found = node.bring(urls=[gone, url])
    assert (found["changed"], found["sent"]) == (True, 0)
    assert node.dest.read_bytes() == CONTENT
    assert node.left() == ["program"]


def test_when_all_have_died_only_the_rest_comes_from_the_controller(node: Node) -> None:
    came = 3_000_000
    with dying(CONTENT[:came]) as gone:
        found = node.bring(urls=[gone])
    assert found["sent"] == len(CONTENT) - came
    assert "ended before all had come" in found["why"][0] or "IncompleteRead" in found["why"][0]
    assert node.dest.read_bytes() == CONTENT
    found = node.bring(urls=["http://127.0.0.1:1/nobody"])
    assert not found["changed"], "nobody is asked for what is there"


def test_another_content_is_refused_by_name_and_the_controller_brings_it(node: Node) -> None:
    wrong = b"#!/bin/sh\nrm -r /\n" + CONTENT[18:]
    with handed_on(node.folder, wrong) as url:
        found = node.bring(urls=[url])
    (why,) = found["why"]
    assert why.startswith(f"{url}: refused, its sha256 is ")
    assert SHA256 in why
    assert found["sent"] == len(CONTENT)
    assert node.dest.read_bytes() == CONTENT


def test_what_was_begun_wrongly_is_thrown_away_and_begun_anew(node: Node) -> None:
    node.part.write_bytes(b"x" * 5_000_000)
    found = node.bring()
    assert found["sent"] == 2 * len(CONTENT) - 5_000_000
    assert node.dest.read_bytes() == CONTENT
    assert node.left() == ["program"]


@pytest.mark.parametrize("came", [1, len(CONTENT) - 1, len(CONTENT)])
def test_what_an_earlier_run_brought_is_gone_on_with(node: Node, came: int) -> None:
    node.part.write_bytes(CONTENT[:came])
    assert node.bring()["sent"] == len(CONTENT) - came
    assert node.dest.read_bytes() == CONTENT


def test_more_than_the_whole_is_none_of_it(node: Node) -> None:
    with dying(CONTENT + b"and more") as url:
        assert node.bring(urls=[url])["changed"]
    assert node.dest.read_bytes() == CONTENT
    node.dest.unlink()
    node.part.write_bytes(CONTENT + b"and more")
    assert node.bring()["sent"] == len(CONTENT)


def test_a_check_says_so_and_brings_nothing(node: Node) -> None:
    found = node.bring("--check")
    assert (found["changed"], found["sent"]) == (True, 0)
    assert node.left() == []
    node.bring()
    assert not node.bring("--check")["changed"]
    node.dest.chmod(0o700)
    assert node.bring(look=True)["lacks"] == "attributes"
    assert node.bring()["sent"] == 0
    assert node.dest.stat().st_mode & 0o777 == 0o750


def test_what_is_no_file_or_has_no_place_is_said(node: Node) -> None:
    node.dest.mkdir()
    assert "is a directory" in node.bring(fails=True)["output"]
    node.dest.rmdir()
    node.dest.parent.rmdir()
    assert "have the role create it before" in node.bring(fails=True)["output"]
    node.source.unlink()
    assert "is no file of the controller's" in node.bring(fails=True)["output"]


def test_the_server_has_one_file_for_who_knows_it_and_ends_when_nobody_asks(node: Node) -> None:
    with handed_on(node.folder, idle_s=1) as url:
        host = url.split("/")[2]

        def status(path: str, first: str = "") -> tuple[str, int]:
            words = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{size_download}"]
            words += ["-H", f"Range: bytes={first}-"] * bool(first)
            done = subprocess.run(
                [*words, f"http://{host}{path}"], capture_output=True, text=True, check=False
            )
            code, size = done.stdout.split()
            return code, int(size)

        assert status(f"/{SHA256}") == ("200", len(CONTENT))
        assert status(f"/{SHA256}", "15000000") == ("206", len(CONTENT) - 15_000_000)
        assert status(f"/{SHA256}", str(len(CONTENT) + 1))[0] == "416"
        for path in ("/", "/etc/passwd", "/../handed-on", f"/{SHA256}/"):
            assert status(path)[0] == "404", path
        wait_for(lambda: not answers(host), "its end")


def test_a_file_that_was_written_since_has_another_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "program"
    for content in (b"one", b"two", b"one"):
        file.write_bytes(content)
        for _ in range(2):
            assert files.content_hash(file) == hashlib.sha256(content).hexdigest()


def test_of_what_the_machine_worked_out_the_newest_stays_and_no_cache_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_CACHE", str(tmp_path / "cache"))
    numbers = Cached("numbers", most=3)
    for number in range(5):
        assert numbers.known_text(str(number), lambda: "a") == "a"
        os.utime(numbers.folder / str(number), (number, number))
    assert {path.name for path in numbers.folder.iterdir()} == {"2", "3", "4"}
    assert numbers.known_text("4", lambda: "b") == "a"
    (numbers.folder / "4").write_bytes(b"\0" * 40)
    assert numbers.known_text("4", lambda: "b") == "b", "power that went left the name, and zeros by it"
    monkeypatch.setenv("CAUSEWAY_CACHE", "/proc/nowhere")
    assert numbers.known_text("4", lambda: "c") == "c"


looks = st.fixed_dictionaries(
    {
        "among": st.sampled_from(["tokyo consul", "shanghai consul"]),
        "lacks": st.sampled_from(["content", "attributes", ""]),
        "address": st.sampled_from(["10.81.16.0", "10.81.16.1", ""]),
    }
)


@given(st.lists(st.none() | looks, max_size=30))
def test_few_hand_it_on_and_who_has_it_goes_first(found: list[dict[str, str] | None]) -> None:
    filters = load(ROLE / "filter_plugins" / "causeway_artefact.py")
    known = {f"node-{n}": {"__artefact": look} if look else {} for n, look in enumerate(found)}
    seeds = filters.artefact_seeds(known, list(known))
    for among in ("tokyo consul", "shanghai consul"):
        of_region = {h: v["__artefact"] for h, v in known.items() if v and v["__artefact"]["among"] == among}
        lacking = {host for host, look in of_region.items() if look["lacks"] == "content"}
        able = {host for host, look in of_region.items() if look["address"]}
        chosen = seeds.get(among, [])
        assert len(chosen) <= filters.SEEDS
        assert set(chosen) <= able, "who has no address that others reach hands nothing on"
        assert lacking or not chosen, "nobody needs it"
        if lacking and able - lacking:
            assert set(chosen) <= able - lacking, "what is there does not come from the controller again"
            assert chosen
        elif len(lacking) > 1 and able:
            assert len(chosen) == min(len(able), filters.SEEDS if len(lacking) > filters.MANY else 1)
