"""The kernel's TCP settings are the declared ones, wherever the kernel lets a node have its own."""

import json

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask

# Reads settings, and where one differs tells whether the kernel would let this node write it at all.
READ = """
import json, os, sys
def reading(name, wanted):
    path = "/proc/sys/" + name.replace(".", "/")
    value = None
    try:
        value = " ".join(open(path).read().split())
        if value != wanted:
            os.close(os.open(path, os.O_WRONLY))
    except OSError as error:
        return {"value": value, "refusal": error.strerror}
    return {"value": value, "refusal": None}
print(json.dumps({name: reading(name, value) for name, value in json.loads(sys.argv[1]).items()}))
"""

# The window scale a connection announces is fixed when it opens, from the largest buffer it may ever have.
WINDOW = """
import json, socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
scale = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[6] >> 4
print(json.dumps({"window": 65535 << scale, "start": client.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)}))
"""
LARGEST_WINDOW_BYTES = 65535 << 14

Readings = dict[str, dict[str, str | None]]


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


@pytest.fixture(scope="module")
def readings(host: Host, expect: Expect) -> Readings:
    """Setting → the value in force, and why the kernel refuses to have it written, if it does."""
    found: Readings = ask(host, READ, json.dumps(wanted(expect)))
    return found


@pytest.mark.parametrize("setting", SETTINGS)
def test_setting(expect: Expect, verdict: VerdictRecorder, readings: Readings, setting: str) -> None:
    refusal = readings[setting]["refusal"]
    if refusal:
        verdict.unsupported(f"the kernel does not let this node set it ({refusal})")
    assert readings[setting]["value"] == wanted(expect)[setting]


def test_the_role_reports_what_it_could_not_set(host: Host, expect: Expect, readings: Readings) -> None:
    fact = ask(host, "print(open('/etc/ansible/facts.d/causeway_tcp_tuning.fact').read())")
    refused = {setting for setting in SETTINGS if readings[setting]["refusal"]}
    in_force = {key for key, value in wanted(expect).items() if readings[key]["value"] == value}
    assert {entry["name"] for entry in fact["unsupported"]} & set(SETTINGS) == refused
    assert set(fact["effective"]) & set(SETTINGS) == in_force


def test_a_connection_can_announce_the_declared_window(host: Host, expect: Expect) -> None:
    found = ask(host, WINDOW)
    assert found["window"] >= min(expect.tcp_tuning_buffer_max_bytes, LARGEST_WINDOW_BYTES)
    assert found["start"] >= expect.tcp_tuning_buffer_default_bytes


def test_settings_survive_a_reboot(
    host: Host, expect: Expect, verdict: VerdictRecorder, readings: Readings
) -> None:
    lines = host.file("/etc/sysctl.d/90-causeway-tcp.conf").content_string.splitlines()
    kept = dict(line.partition(" = ")[::2] for line in lines if not line.startswith("#"))
    values = wanted(expect)
    assert kept == {key: value for key, value in values.items() if readings[key]["value"] == value}
    verdict.rendered("proving it would mean a reboot")
