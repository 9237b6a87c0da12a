"""What the links really do stands in the node's metrics, beside what is declared."""

import re

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, run_anew, settled
from tests.verify.wan_gateway.links import neighbours, own_links

pytestmark = pytest.mark.deadline(60)

SETTLED_WITHIN_S = 30.0
PROBE = "causeway-wan-probe.service"
TIMER = "causeway-wan-probe.timer"
LONGER, SLACK_MS = 1.5, 25
"""A round trip of so many times the declared one, and so much more, takes another path: buffers that are
planned for the declared one fill only a part of the link. The slack is for a busy machine's nodes."""


def measured(host: Host, expect: Expect) -> dict[str, float]:
    """`link_up{link="trans-sea"}` → value, measured now."""
    done = host.run(run_anew(PROBE))
    assert done.rc == 0, done.stderr
    return metrics(host, expect)


def metrics(host: Host, expect: Expect) -> dict[str, float]:
    """The same, as it stands there for node_exporter."""
    done = host.run(f"cat {expect.wan_gateway_metrics_dir}/causeway_wan.prom")
    assert done.rc == 0, done.stderr
    values = re.findall(r"^causeway_wan_(\S+) (\S+)$", done.stdout, re.MULTILINE)
    return {name: float(value) for name, value in values}


def test_every_link_is_measured(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    now = float(host.run("date +%s").stdout)
    found = measured(host, expect)
    assert found["probe_timestamp_seconds"] >= now
    links = own_links(expect)
    if not links:
        verdict.not_declared("no link ends here")
    for link in links:
        of = f'{{link="{link["name"]}"}}'
        assert found[f"link_up{of}"] == 1, f"{link['name']}: nothing comes back"
        rtt_ms, most_ms = found[f"link_rtt_seconds{of}"] * 1000, LONGER * link["rtt_ms"] + SLACK_MS
        assert 0 < rtt_ms <= most_ms, (
            f"{link['name']}: the round trip takes {rtt_ms:.1f} ms, and {link['rtt_ms']:g} ms is declared; "
            "has the carrier changed the path? `causeway wan measure` shows what there is"
        )
        assert found[f"link_loss_ratio{of}"] < 1
        assert found[f"link_mtu_bytes{of}"] == found[f"link_declared_mtu_bytes{of}"] == link["mtu_bytes"]
        assert found[f"link_declared_rtt_seconds{of}"] == pytest.approx(link["rtt_ms"] / 1000)


def test_every_neighbour_is_told(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    found = metrics(host, expect)
    wanted = neighbours(expect)
    if not wanted:
        verdict.not_declared("no gateway at the other ends")
    # The other ends may have been configured a moment ago.
    missing = silent(found, wanted) and settled(
        lambda: silent(measured(host, expect), wanted), lambda missing: not missing, SETTLED_WITHIN_S
    )
    assert not missing, f"the metrics know no session with a living BFD to {', '.join(sorted(missing))}"


def silent(found: dict[str, float], wanted: set[str]) -> set[str]:
    """Those of whom the metrics do not say that both BGP and BFD stand."""

    def stands(peer: str) -> bool:
        about = {name.partition("{")[0]: value for name, value in found.items() if f'peer="{peer}"' in name}
        return about.get("bgp_up") == about.get("bfd_up") == 1

    return {peer for peer in wanted if not stands(peer)}


def test_they_are_measured_again_and_again(host: Host) -> None:
    states = host.run(f"systemctl is-enabled {TIMER}; systemctl is-active {TIMER}").stdout.split()
    assert states == ["enabled", "active"]
    elapse = host.run(f"systemctl show -P NextElapseUSecMonotonic {TIMER}").stdout.strip()
    assert elapse not in ("", "infinity"), "no next measurement is due"
