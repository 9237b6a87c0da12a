"""The kernel's TCP settings are the declared ones, wherever the kernel lets a node have its own."""

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask

# Reads a setting, and when it differs tells whether the kernel would let this node write it at all.
READ = """
import json, sys
path = "/proc/sys/" + sys.argv[1].replace(".", "/")
try:
    value = " ".join(open(path).read().split())
except OSError as error:
    print(json.dumps({"value": None, "refusal": error.strerror})); sys.exit()
refusal = None
if value != sys.argv[2]:
    try:
        with open(path, "w") as setting:
            setting.write(value)
    except OSError as error:
        refusal = error.strerror
print(json.dumps({"value": value, "refusal": refusal}))
"""

# Two sockets of this machine's own: how large do the kernel's buffers get, when nobody asks for a size?
GROW = """
import json, socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
client.setblocking(False)
sent = 0
try:
    while sent < 1 << 31:
        sent += client.send(bytes(1 << 16))
except BlockingIOError:
    pass
print(json.dumps(sent))
"""


def wanted(expect: Expect) -> dict[str, str]:
    """Setting → value, spelled as the kernel does."""
    largest = expect.tcp_tuning_buffer_max_bytes
    start = expect.tcp_tuning_buffer_default_bytes
    return {
        "net.core.default_qdisc": expect.tcp_tuning_default_qdisc,
        "net.core.rmem_max": str(largest),
        "net.core.wmem_max": str(largest),
        "net.ipv4.tcp_rmem": f"4096 {start} {largest}",
        "net.ipv4.tcp_wmem": f"4096 {min(start, 65536)} {largest}",
        "net.ipv4.tcp_congestion_control": expect.tcp_tuning_default_congestion_control,
        "net.ipv4.tcp_mtu_probing": str(expect.tcp_tuning_mtu_probing),
        "net.ipv4.tcp_slow_start_after_idle": str(int(expect.tcp_tuning_slow_start_after_idle)),
    }


SETTINGS = (
    "net.core.default_qdisc",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_slow_start_after_idle",
)


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting(host: Host, expect: Expect, verdict: VerdictRecorder, setting: str) -> None:
    value = wanted(expect)[setting]
    found = ask(host, READ, setting, value)
    if found["refusal"]:
        verdict.unsupported(f"the kernel does not let this node set it ({found['refusal']})")
    assert found["value"] == value


def test_the_role_reports_what_it_could_not_set(host: Host, expect: Expect) -> None:
    fact = ask(host, "print(open('/etc/ansible/facts.d/causeway_tcp_tuning.fact').read())")
    lacking = {entry["name"] for entry in fact["unsupported"]}
    for setting, value in wanted(expect).items():
        found = ask(host, READ, setting, value)
        assert (setting in lacking) == bool(found["refusal"]), f"{setting}: {found}"
        assert (setting in fact["effective"]) == (found["value"] == value), f"{setting}: {found}"


def test_a_connection_can_hold_what_the_link_needs(host: Host, expect: Expect) -> None:
    # Half of a buffer is the kernel's own overhead (tcp_adv_win_scale).
    assert ask(host, GROW) >= expect.tcp_tuning_buffer_max_bytes / 2


def test_settings_survive_a_reboot(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    kept = dict(
        line.partition(" = ")[::2]
        for line in host.file("/etc/sysctl.d/90-causeway-tcp.conf").content_string.splitlines()
        if not line.startswith("#")
    )
    effective = {
        setting: value
        for setting, value in wanted(expect).items()
        if ask(host, READ, setting, value)["value"] == value
    }
    assert kept == effective
    verdict.rendered("proving it would mean a reboot")
