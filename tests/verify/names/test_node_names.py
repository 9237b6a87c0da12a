"""The node finds all nodes by their names, and each node that answers does so by itself."""

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask, is_address, resolved, sample

PORT = 8653
NOBODY = "no such name"
SETTLING_S = 20
"""How long a node may take to answer after it was told to."""
pytestmark = pytest.mark.deadline(4 * SETTLING_S)

# Whether a name server says an address of a name (RFC 1035), asked until it does, or says what is enough, or
# time is up: a datagram may be lost.
QUESTION = """
import json, socket, sys, time
server, port, limit_s, enough, *names = sys.argv[1:]
end = time.monotonic() + float(limit_s)
def answer(name):
    words = b"".join(bytes([len(word)]) + word.encode() for word in name.split("."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(2)
        link.connect((server, int(port)))
        link.send(b"CW\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + words + bytes([0, 0, 1, 0, 1]))
        said = link.recv(512)
    found = int.from_bytes(said[6:8], "big")
    return socket.inet_ntoa(said[-4:]) if found == 1 else "no such name" if said[3] & 15 == 3 else "nothing"
def asked(name):
    while True:
        try:
            said = answer(name)
        except OSError as error:
            said = type(error).__name__
        if said.count(".") == 3 or said == enough or time.monotonic() > end:
            return said
        time.sleep(0.5)
print(json.dumps({name: asked(name) for name in names}))
"""


def entries(expect: Expect) -> dict[str, str]:
    """Host name → address, of all whom the role has answered for."""
    if expect.names_entries:
        return dict(expect.names_entries)
    return {name: text for name, text in expect.cluster_addresses.items() if is_address(text)}


def asked(host: Host, server: str, names: list[str], enough: str = "") -> dict[str, str]:
    """Name → the address that a server says; `enough`: what else it may say that is an answer."""
    found: dict[str, str] = ask(host, QUESTION, server, str(PORT), str(SETTLING_S), enough, *names)
    return found


def test_nodes_are_found_by_their_bare_names(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if expect.names_dns == "none":
        verdict.not_declared("nothing asks for a bare name")
    known = entries(expect)
    names = sample(known)
    assert resolved(host, names, SETTLING_S) == {name: [known[name]] for name in names}


def test_whole_names_are_answered_on_the_node(host: Host, expect: Expect) -> None:
    known = entries(expect)
    names = {f"{name}.{expect.names_domain}": known[name] for name in sample(known)}
    assert asked(host, "127.0.0.1", [*names]) == names


def test_each_server_answers_by_itself(host: Host, expect: Expect) -> None:
    first, address = next(iter(entries(expect).items()))
    name = f"{first}.{expect.names_domain}"
    assert {server: asked(host, server, [name]) for server in expect.names_servers} == {
        server: {name: address} for server in expect.names_servers
    }


def test_a_name_that_no_node_has_is_nobody(host: Host, expect: Expect) -> None:
    name = f"nobody-999999.{expect.names_domain}"
    assert asked(host, "127.0.0.1", [name], NOBODY) == {name: NOBODY}
