"""What the checks of monitoring's services share: questions to one of them, asked on its node as a client."""

from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import ask

TLS = "/etc/prometheus/tls"
ASK = """
import http.client, json, ssl, sys, time, urllib.error, urllib.request
url, certificate, wanted, patience_s, body, read_s = sys.argv[1:7]
context = ssl.create_default_context(cafile="/etc/prometheus/tls/ca.pem")
context.load_cert_chain(certificate + ".pem", certificate + "-key.pem")
deadline = time.monotonic() + float(patience_s)
while True:
    try:
        request = urllib.request.Request(url, body.encode() or None, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=float(read_s), context=context) as answer:
            found = answer.read().decode()
    except (OSError, http.client.HTTPException):
        if not wanted or time.monotonic() > deadline:
            raise
        time.sleep(1)
        continue
    try:
        found = json.loads(found or "null")
    except ValueError:
        pass
    if not wanted or eval(wanted, {"found": found}) or time.monotonic() > deadline:
        print(json.dumps(found))
        break
    time.sleep(1)
"""
STRANGER = """
import json, socket, ssl, sys
address, port = sys.argv[1], int(sys.argv[2])
context = ssl.create_default_context(cafile="/etc/prometheus/tls/ca.pem")
with socket.create_connection((address, port), 10) as bare:
    try:
        with context.wrap_socket(bare, server_hostname=address) as shown:
            names = [value for _kind, value in shown.getpeercert()["subjectAltName"]]
            shown.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
            said = shown.recv(100).decode(errors="replace")
            print(json.dumps({"names": names, "said": said}))
    except ssl.SSLError as error:
        print(json.dumps({"refused": error.reason}))
"""
"""Asks without a certificate; the server's own is held against the authority's."""


def answer(
    host: Host,
    url: str,
    service: str,
    wanted: str = "",
    patience_s: float = 0,
    body: str = "",
    read_s: float = 10,
) -> Any:
    """What a service answers to the node's own certificate for `service`.

    `wanted` is an expression about `found`; it is asked again until that holds or the time is up. `read_s`:
    how long one answer may take.
    """
    return ask(host, ASK, url, f"{TLS}/{service}", wanted, str(patience_s), body, str(read_s))


def refuses_strangers(host: Host, address: str, port: int) -> None:
    """Without a certificate of the authority's there is no answer, and no port but on that address."""
    found = ask(host, STRANGER, address, str(port))
    if "CERTIFICATE_REQUIRED" not in found.get("refused", ""):
        pytest.fail(f"port {port} answers to who shows no certificate: {found}")
    listening = host.run(f"ss --no-header --listening --tcp --numeric 'sport = :{port}'").stdout.splitlines()
    assert [line.split()[3] for line in listening] == [f"{address}:{port}"]
