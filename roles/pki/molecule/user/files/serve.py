#!/usr/bin/python3
"""Answers over TLS at port 8444, with the certificate that is there when it starts, or is sent a SIGHUP."""

import http.server
import os
import signal
import socket
import ssl
from typing import Any

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def read(*_signal: Any) -> None:
    """Read key and certificate: connections that come take them."""
    context.load_cert_chain("/etc/pki-user/certificate.pem", "/etc/pki-user/key.pem")


read()
signal.signal(signal.SIGHUP, read)
server = http.server.HTTPServer(("127.0.0.1", 8444), http.server.BaseHTTPRequestHandler)
server.socket = context.wrap_socket(server.socket, server_side=True)
# A SIGHUP before this line had ended it: systemd sends none until it has heard (sd_notify(3)).
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
    manager.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
server.serve_forever()
