"""Hands one file on to the other nodes of a region, for as long as they ask.

    python3 -c PROGRAM ADDRESS SHA256 IDLE_S PORT_FILE < FILE

It answers GET /SHA256, whole or from a byte on, at a port that was free, and writes that down. It ends when
nobody has asked for IDLE_S. The file comes as standard input, opened by systemd: this runs as nobody.
"""

import http.server
import os
import re
import sys
import threading
import time
from pathlib import Path

CHUNK = 1 << 20
SILENT_S = 20.0
FROM = re.compile(r"bytes=([0-9]+)-")


class Server(http.server.ThreadingHTTPServer):
    """Knows when somebody last asked, and how many are at it."""

    daemon_threads = True

    def __init__(self, address: str, sha256: str) -> None:
        super().__init__((address, 0), Handler)
        self.sha256 = sha256
        self.lock, self.busy, self.asked = threading.Lock(), 0, time.monotonic()

    def count(self, change: int) -> None:
        """One more, or one less."""
        with self.lock:
            self.busy += change
            self.asked = time.monotonic()

    def idle_for(self) -> float:
        """Seconds in which nobody was served."""
        with self.lock:
            return 0.0 if self.busy else time.monotonic() - self.asked


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = SILENT_S
    """Whoever takes nothing for so long is given up."""

    def do_GET(self) -> None:
        """The file from a byte on."""
        if self.path != f"/{self.server.sha256}":
            self.send_error(404)
            return
        size = os.fstat(0).st_size
        asked = FROM.fullmatch(self.headers.get("Range", ""))
        first = int(asked.group(1)) if asked else 0
        if first > size:
            self.send_error(416)
            return
        self.server.count(1)
        try:
            self.send_response(206 if asked else 200)
            self.send_header("Content-Length", str(size - first))
            self.end_headers()
            while first < size and (block := os.pread(0, CHUNK, first)):
                self.wfile.write(block)
                first += len(block)
        finally:
            self.server.count(-1)

    def log_message(self, *words: object) -> None:
        """Nothing: a run has its own log."""


def main(address: str, sha256: str, idle_s: str, port_file: str) -> None:
    """Serve until nobody asks."""
    server = Server(address, sha256)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    part = Path(port_file + ".part")
    part.write_text(str(server.server_address[1]))
    part.replace(port_file)
    while server.idle_for() < float(idle_s):
        time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
