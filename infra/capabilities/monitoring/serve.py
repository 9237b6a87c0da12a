"""`causeway status --serve`: the page of a cluster's state, kept fresh, for browsers on this machine only."""

import base64
import errno
import hashlib
import html
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from infra.capabilities.monitoring.page import STYLE
from infra.errors import CausewayError, ExitCode, why
from infra.ground.page import document

PORT = 8642
ADDRESSES = ("127.0.0.1", "::1")
OURS = ("localhost", "127.0.0.1", "[::1]")
"""What a browser may call us. Another name that leads here is somebody's who wants to read along."""
PATIENCE_S = 30
"""For a browser to say what it wants, and to take it."""
PLACE = "<!-- how old -->"
"""Where a page says how old it is; no text of a node can be this, for its `<` is escaped."""
SCRIPT = """
const live = () => document.getElementById("live"), each = Number(live().dataset.each);
let told = Date.now();
setInterval(() => {
  live().querySelector("b").textContent =
    `${Math.round(Number(live().dataset.age) + (Date.now() - told) / 1000)} s`;
}, 1000);
setInterval(async () => {
  try {
    const answer = await fetch("/", {signal: AbortSignal.timeout(1000 * each)});
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!next.getElementById("live")) throw new Error("another program answers");
    next.querySelector("noscript").remove();
    document.title = next.title;
    document.body.replaceWith(next.body);
    told = Date.now();
  } catch {
    live().className = "wrong";
    live().querySelector("i").textContent = "Nothing answers any more: is causeway status --serve ended?";
  }
}, 1000 * each);
"""
"""Puts the next page in the place of this one in one go, so that nothing flickers or moves. DOMParser reads
`noscript` as a browser without scripts, and what stands in there would load the page anew."""
DIGEST = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{DIGEST}';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
"""Should a node's text become markup after all, it runs nothing."""


@dataclass(frozen=True)
class Look:
    """The last page, when the look behind it began (seconds, monotonic), and what went wrong since."""

    page: str = ""
    at: float = 0
    wrong: str = ""


class Fresh:
    """A page that is made again and again. One thread makes it, others read: a look is replaced whole."""

    def __init__(self, look: Callable[[], tuple[str, str]], every_s: float) -> None:
        """`look` makes a page that holds PLACE, and says in what way an older page is better, if it is."""
        self.look, self.every_s, self.last = look, every_s, Look()

    def again(self) -> None:
        """Look once more; where that fails the last page stays, with what is wrong on it."""
        at = time.monotonic()
        try:
            page, wrong = self.look()
        except Exception as error:
            page, wrong = "", why(error)
        if wrong and (self.last.page or not page):
            self.last = replace(self.last, wrong=wrong)
        else:
            self.last = Look(page, at)

    def go_on(self) -> None:
        """For ever, in a thread of its own."""
        while True:
            self.again()
            time.sleep(self.every_s)

    def text(self) -> str:
        """The page as it is to be read now."""
        last = self.last
        page = last.page or document("Causeway", [PLACE], STYLE)
        return page.replace(PLACE, self._top(last), 1)

    def _top(self, last: Look) -> str:
        """How old the page is, and what renews it: a script, or where none runs the browser."""
        age, each = (max(0, round(seconds)) for seconds in (time.monotonic() - last.at, self.every_s))
        says = (
            f"Seen <b>{age} s</b> ago; looked at again every {each} s."
            if last.page
            else "No look has come back yet<b></b>."
        )
        if last.wrong:
            says += f" The last look failed: {html.escape(last.wrong)}"
        return (
            f'<p id="live" class="{"wrong" if last.wrong else ""}" data-age="{age}" data-each="{each}">{says}'
            f' <i></i></p><script>{SCRIPT}</script><noscript><meta http-equiv="refresh" content="{each}">'
            "</noscript>"
        )


class Server(ThreadingTCPServer):
    """Answers on one address. No HTTPServer: that one asks the name service what this machine is called."""

    daemon_threads = True
    allow_reuse_address = True
    """A port is free at once when the last server on it has ended."""

    def __init__(self, address: str, port: int, fresh: Fresh) -> None:
        self.fresh = fresh
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        super().__init__((address, port), Handler)

    @property
    def port(self) -> int:
        """On which it listens."""
        return int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away in the middle is nothing to tell."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = PATIENCE_S

    def do_GET(self) -> None:
        """The page at `/`, and nothing else."""
        if not is_ours(self.headers.get_all("Host", [])):
            self._say(HTTPStatus.FORBIDDEN, f"Call this page by one of {', '.join(OURS)}.\n", "plain")
        elif self.path != "/":
            self._say(HTTPStatus.NOT_FOUND, "There is one page here: /\n", "plain")
        else:
            self._say(HTTPStatus.OK, self.server.fresh.text(), "html")

    def do_HEAD(self) -> None:
        """The same without the page."""
        self.do_GET()

    def _say(self, status: HTTPStatus, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_words: Any) -> None:
        """Nothing: the page is asked for all the time."""


def is_ours(named: list[str]) -> bool:
    """Whether a request's Host headers name this machine by one of its own names, with any port."""
    name = named[0].lower() if len(named) == 1 else ""
    host, _, port = name.rpartition(":")
    return name in OURS or (host in OURS and port.isascii() and port.isdecimal())


def listen(fresh: Fresh, port: int) -> list[Server]:
    """A server on each address of this machine's own; CausewayError where another program has the port.

    Both, or a browser that calls `localhost` might find another program on the other. Port 0: any free one.
    """
    servers: list[Server] = []
    for address in ADDRESSES:
        try:
            servers.append(Server(address, servers[0].port if servers else port, fresh))
        except OSError as error:
            if servers and error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                continue  # a machine without IPv6
            for server in servers:
                server.server_close()
            taken = error.errno == errno.EADDRINUSE
            reason = "another program has it" if taken else error.strerror
            raise CausewayError(
                f"port {port} of {address} cannot be served: {reason}", hint="name a free one: --serve PORT"
            ) from None
    return servers


def serve(fresh: Fresh, port: int, what: str) -> ExitCode:
    """Serve until Ctrl-C; no look that is under way is waited for."""
    servers = listen(fresh, port)
    address = f"http://localhost:{servers[0].port}/"
    print(f"{address} shows {what}, seen again every {fresh.every_s:g} s; Ctrl-C ends it", flush=True)
    try:
        for work in (fresh.go_on, *(server.serve_forever for server in servers[1:])):
            threading.Thread(target=work, daemon=True).start()
        servers[0].serve_forever()
    except KeyboardInterrupt:
        print()
    return ExitCode.OK
