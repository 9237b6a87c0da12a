"""What the verification's tests are handed: expected values, verdicts, one trip for many questions."""

import ipaddress
import json
import shlex
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import pytest
from testinfra.host import Host

from infra.verify.expectations import Expectation

Seen = TypeVar("Seen")


class Expect:
    """The host's role variables as attributes; a misspelt one is an error, not a None."""

    def __init__(self, expectation: Expectation, addresses: dict[str, str]) -> None:
        self.host_name = expectation.host
        self.address = expectation.address
        self.connection = expectation.connection
        self.login_user = expectation.ssh_options.get("User", "root")
        self.cluster_addresses = addresses
        self._variables = expectation.variables

    def __getattr__(self, name: str) -> Any:
        try:
            return self._variables[name]
        except KeyError:
            raise AttributeError(f"no role of {self.host_name} has a variable {name}") from None


@dataclass
class VerdictRecorder:
    """Ends a check with a verdict that is no proof."""

    request: pytest.FixtureRequest

    def unsupported(self, reason: str) -> NoReturn:
        """This node cannot have it; `reason` says what is lacking."""
        self._end("unsupported", reason)

    def rendered(self, reason: str) -> NoReturn:
        """It is written down, and nothing more can be shown here; `reason` says why."""
        self._end("rendered", reason)

    def not_declared(self, reason: str) -> NoReturn:
        """Nothing is declared that this check could prove: it is left out of the counts."""
        self._end("", reason)

    def _end(self, verdict: str, reason: str) -> NoReturn:
        self.request.node.user_properties += [("verdict", verdict), ("reason", reason)]
        pytest.skip(f"{verdict}: {reason}")


def ask(host: Host, script: str, *arguments: str) -> Any:
    """Run a Python script on the node and return the JSON it prints; a failure shows what it said."""
    words = " ".join(shlex.quote(word) for word in ("python3", "-c", script, *arguments))
    done = host.run(words)
    assert done.rc == 0, f"on the node: {done.stderr.strip().splitlines()[-1:]}"
    return json.loads(done.stdout)


SAMPLE = 400
"""Names looked up per node: all of a small cluster, evenly spread ones of a large one."""

# The addresses of each name, asked the way every program of the node asks, until all have some or time is up.
RESOLVE = """
import json, socket, sys, time
end = time.monotonic() + float(sys.argv[1])
def addresses(name):
    while True:
        try:
            return sorted({found[4][0] for found in socket.getaddrinfo(name, 22, type=socket.SOCK_STREAM)})
        except OSError:
            if time.monotonic() > end:
                return []
            time.sleep(0.5)
print(json.dumps({name: addresses(name) for name in sys.argv[2:]}))
"""


def sample(names: Collection[str]) -> list[str]:
    """Those of many names that are looked up."""
    return [*names][:: max(1, len(names) // SAMPLE)]


def resolved(host: Host, names: Collection[str], within_s: float) -> dict[str, list[str]]:
    """Name → its addresses, as the node's programs find them; none where there are none in that time."""
    found: dict[str, list[str]] = ask(host, RESOLVE, str(within_s), *names)
    return found


def is_address(text: str) -> bool:
    """Whether it is an address, of any family."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def route_to(host: Host, address: str) -> dict[str, Any]:
    """How the kernel would send to an address; empty where it would not."""
    found = json.loads(host.run(f"ip -json route get {address}").stdout or "[]")
    return dict(found[0]) if found else {}


def settled(look: Callable[[], Seen], holds: Callable[[Seen], object], within_s: float) -> Seen:
    """What LOOK shows as soon as HOLDS is true of it; the last it showed when WITHIN_S seconds are over.

    Nodes are looked at when the last of them was configured a moment ago, and what they agree on with each
    other (routes, elections) takes its time, on a busy machine several times as long.
    """
    deadline = time.monotonic() + within_s
    while not holds(seen := look()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return seen


def run_anew(unit: str) -> str:
    """The shell command that runs a oneshot unit from its beginning.

    A run that its timer began may be under way, and have looked before: that one is only waited for.
    """
    under_way = f'[ "$(systemctl is-active {unit})" = activating ]'
    return f"{{ if {under_way}; then systemctl start {unit}; fi; systemctl start {unit}; }}"


KNOCK = """
import json, ssl, sys, urllib.error, urllib.request
url, authority, certificate, key, body = sys.argv[1:6]
context = ssl.create_default_context(cafile=authority)
if certificate:
    context.load_cert_chain(certificate, key)
try:
    names = {"AccountID": "7", "VL-Extra-Fields": "node=somebody-else"} if body else {}
    asked = urllib.request.Request(url, body.encode() or None, names)
    with urllib.request.urlopen(asked, timeout=20, context=context) as answer:
        print(json.dumps({"status": answer.status, "said": answer.read().decode()}))
except urllib.error.HTTPError as error:
    print(json.dumps({"status": error.code}))
except (ssl.SSLError, OSError) as error:
    print(json.dumps({"refused": str(getattr(error, "reason", None) or error)}))
"""


def knock(
    host: Host, authority: str, url: str, certificate: str = "", key: str = "", body: str = ""
) -> dict[str, object]:
    """What a service that asks for certificates says to somebody on the node: `status` and `said`, or why the
    connection was `refused`. `authority` is the file of who vouches for the service."""
    found: dict[str, object] = ask(host, KNOCK, url, authority, certificate, key, body)
    return found
