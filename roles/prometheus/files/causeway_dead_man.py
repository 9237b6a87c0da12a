#!/usr/bin/python3
"""The other end of dead man's switches: takes Alertmanager's webhooks, and says when the last one came.

    dead_man.py ADDRESS PORT TLS-FOLDER STATE-FILE REGION…

An alert that always fires is posted here by the Alertmanager of each REGION, again and again; GET /metrics
answers when. Whoever asks or posts shows a certificate of monitoring's authority. A restart goes on from what
STATE-FILE says.
"""

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAME = "causeway_deadman_last_seen_timestamp_seconds"
LARGEST_BODY = 1 << 20
PATIENCE_S = 10
"""For a client that says nothing."""


class Seen:
    """Region → when it was last heard of, in seconds since 1970; 0 for never."""

    def __init__(self, file: Path, regions: list[str]) -> None:
        """Go on from what an earlier process left."""
        self.file, self.lock = file, threading.Lock()
        try:
            before = json.loads(file.read_text())
            self.at = {region: float(before.get(region, 0)) for region in regions}
        except (OSError, ValueError, TypeError, AttributeError):
            self.at = dict.fromkeys(regions, 0.0)

    def heard(self, regions: set[str]) -> None:
        """They live. The file is written whole or not at all."""
        with self.lock:
            self.at.update(dict.fromkeys(regions & self.at.keys(), time.time()))
            part = self.file.with_name(self.file.name + ".part")
            part.write_text(json.dumps(self.at))
            part.replace(self.file)

    def metrics(self) -> str:
        """In Prometheus' text format."""
        lines = [f"# HELP {NAME} When a region's alerts last came through.", f"# TYPE {NAME} gauge"]
        lines += [f'{NAME}{{from_region="{region}"}} {at:.3f}' for region, at in sorted(self.at.items())]
        return "\n".join(lines) + "\n"


def regions_in(body: bytes) -> set[str]:
    """The regions of the alerts that fire; ValueError for what is no webhook of Alertmanager's."""
    try:
        alerts = json.loads(body)["alerts"]
        return {str(one["labels"]["region"]) for one in alerts if one["status"] == "firing"}
    except (KeyError, TypeError) as error:
        raise ValueError("no alerts of Alertmanager's") from error


def handler(seen: Seen) -> type[BaseHTTPRequestHandler]:
    """What answers."""

    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S

        def do_POST(self) -> None:
            """Take down who is heard of."""
            try:
                length = int(self.headers.get("Content-Length", ""))
                if not 0 <= length <= LARGEST_BODY:
                    raise ValueError("too large")
                regions = regions_in(self.rfile.read(length))
            except ValueError:
                self.send_error(400)
                return
            seen.heard(regions)
            self.send_response(204)
            self.end_headers()

        def do_GET(self) -> None:
            """Say when."""
            text = seen.metrics().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_words: object) -> None:
            """Nothing: it would be a line every half a minute."""

    return Handler


class Server(ThreadingHTTPServer):
    """By TLS; each connection in a thread of its own, the handshake included: none holds up others."""

    daemon_threads = True

    def __init__(self, at: tuple[str, int], seen: Seen, tls: Path) -> None:
        """Listen."""
        self.tls = tls
        super().__init__(at, handler(seen))

    def finish_request(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """The files are read anew each time, so that a renewed certificate counts."""
        if not isinstance(request, socket.socket):
            return  # of a server by UDP
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.tls / "ca.pem")
        context.load_cert_chain(self.tls / "prometheus.pem", self.tls / "prometheus-key.pem")
        request.settimeout(PATIENCE_S)
        try:
            shown = context.wrap_socket(request, server_side=True)
        except OSError:
            return  # no certificate, another authority's, or silence
        with shown:
            super().finish_request(shown, client_address)  # type: ignore[arg-type] # as the base has it


def main(address: str, port: str, tls: str, state: str, *regions: str) -> None:
    """Listen until ended."""
    Server((address, int(port)), Seen(Path(state), list(regions)), Path(tls)).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
