"""chrony runs, asks whom it should, and the region's own servers answer."""

import ipaddress

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask

SYNCHRONISED_WITHIN_S = 90
"""A server of the region's answers with a time of its own once it has one itself."""

# An NTP client's request (RFC 5905: version 4, mode 3), to each server named; who answers with mode 4?
ASK_SERVERS = """
import json, socket, sys
def answers(server):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.settimeout(2)
        for _ in range(3):
            try:
                link.sendto(bytes([0x23]) + bytes(47), (server, 123))
                return link.recv(512)[0] & 7 == 4
            except OSError:
                pass
    return False
print(json.dumps({server: answers(server) for server in sys.argv[1:]}))
"""


@pytest.fixture(autouse=True)
def _replaced(expect: Expect, verdict: VerdictRecorder) -> None:
    if expect.base_adopt_time_servers == "keep":
        verdict.not_declared("what sets the clock is kept as it was")


def steers_the_clock(expect: Expect, in_container: bool) -> bool:
    return bool(
        expect.base_ntp_control_clock == "always"
        or (expect.base_ntp_control_clock == "auto" and not in_container)
    )


def own_addresses(host: Host) -> set[str]:
    return set(host.run("hostname --all-ip-addresses").stdout.split())


def test_chrony_answers(host: Host) -> None:
    done = host.run("chronyc -n -c tracking")
    assert done.rc == 0, done.stdout + done.stderr
    assert len(done.stdout.split(",")) >= 14


def test_chrony_asks_the_declared_servers(host: Host, expect: Expect) -> None:
    own = {expect.address, expect.base_hosts_entries.get(expect.base_hostname)}
    declared = {server for server in expect.base_ntp_region_servers if server not in own}
    declared |= {*expect.base_ntp_servers, *expect.base_ntp_pools}
    listed = host.run("chronyc -N -c sources -a && chronyc -n -c sources -a")
    assert listed.rc == 0, listed.stdout
    asked = {line.split(",")[2] for line in listed.stdout.splitlines()} - {""}
    assert declared <= asked, f"asks {sorted(asked)}"


@pytest.mark.deadline(60)
def test_the_regions_time_servers_answer(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.base_ntp_region_servers:
        verdict.not_declared("the region has no time server of its own")
    allowed = [ipaddress.ip_network(network) for network in expect.base_ntp_allow]
    if not any(ipaddress.ip_address(own) in network for own in own_addresses(host) for network in allowed):
        verdict.unsupported("the node has no address in a network that the time servers answer")
    answers = ask(host, ASK_SERVERS, *expect.base_ntp_region_servers)
    assert answers == dict.fromkeys(expect.base_ntp_region_servers, True)


@pytest.mark.deadline(SYNCHRONISED_WITHIN_S + 20)
def test_the_clock_is_steered(
    host: Host, expect: Expect, in_container: bool, verdict: VerdictRecorder
) -> None:
    # Whether the process has -x is what matters, not what a file says.
    process = host.run("pid=$(cat /run/chrony/chronyd.pid) && tr '\\0' ' ' < /proc/$pid/cmdline")
    assert process.rc == 0, "chronyd does not run"
    options = process.stdout.split()
    if not steers_the_clock(expect, in_container):
        assert "-x" in options, f"chronyd would set a clock that is not its own: {options}"
        verdict.unsupported("the clock is not this node's to set; chronyd only measures (-x)")
    assert "-x" not in options
    done = host.run(f"chronyc waitsync {SYNCHRONISED_WITHIN_S // 2} 0 0 2")
    assert done.rc == 0, "not synchronised: " + (done.stdout.splitlines() or [""])[-1]


def test_a_wrong_clock_is_stepped_at_the_start(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    # chronyd reads its own file the way the daemon does, and prints what it understood.
    threshold, limit = expect.base_ntp_makestep_threshold_s, expect.base_ntp_makestep_limit
    done = host.run("/usr/sbin/chronyd -p -f /etc/chrony/chrony.conf")
    steps = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("makestep ")]
    assert [(float(a), int(b)) for a, b in steps] == [(threshold, limit)], done.stdout
    verdict.rendered("proving it would mean setting the node's clock wrong")
