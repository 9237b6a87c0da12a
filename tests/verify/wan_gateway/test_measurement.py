"""What the links really do stands in the node's metrics, beside what is declared."""

import re

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, run_anew, settled
from tests.verify.wan_gateway.links import Link, neighbours, own_links

pytestmark = pytest.mark.deadline(90)

SETTLED_WITHIN_S = 30.0
"""The other ends may have been configured a moment ago: a tunnel knocks every five seconds (REKEY_TIMEOUT of
WireGuard), and agrees on nothing until both ends are there."""
PROBE = "causeway-wan-probe.service"
TIMER = "causeway-wan-probe.timer"
NEVER = ("", "infinity")
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
    links = own_links(expect)
    if not links:
        verdict.not_declared("no link ends here")
    now = float(host.run("date +%s").stdout)
    wrong = settled(
        lambda: wrongs(measured(host, expect), links, now), lambda wrong: not wrong, SETTLED_WITHIN_S
    )
    assert not wrong, "; ".join(wrong)


def wrongs(found: dict[str, float], links: list[Link], since: float) -> list[str]:
    """What a measurement says against what is declared; it must not be older than `since`."""
    if found["probe_timestamp_seconds"] < since:
        return ["the links were not measured again"]
    return [f"{link['name']}: {said}" for link in links if (said := wrong_with(found, link))]


def wrong_with(found: dict[str, float], link: Link) -> str:
    """What is wrong with one link; nothing where it is as declared."""
    of = f'{{link="{link["name"]}"}}'
    if found[f"link_up{of}"] != 1 or found[f"link_loss_ratio{of}"] >= 1:
        return "nothing comes back"
    rtt_ms, most_ms = found[f"link_rtt_seconds{of}"] * 1000, LONGER * link["rtt_ms"] + SLACK_MS
    if not 0 < rtt_ms <= most_ms:
        return (
            f"the round trip takes {rtt_ms:.1f} ms, and {link['rtt_ms']:g} ms is declared; "
            "has the carrier changed the path? `causeway wan measure` shows what there is"
        )
    sizes = [found[f"link_{which}mtu_bytes{of}"] for which in ("", "declared_")]
    if sizes != [link["mtu_bytes"]] * 2:
        return f"packets of {sizes[0]:g} bytes get through, and {link['mtu_bytes']} are declared"
    told_ms = found[f"link_declared_rtt_seconds{of}"] * 1000
    return "" if told_ms == pytest.approx(link["rtt_ms"]) else f"the metrics know {told_ms:g} ms as declared"


def test_every_neighbour_is_told(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    found = metrics(host, expect)
    wanted = neighbours(expect)
    if not wanted:
        verdict.not_declared("no gateway at the other ends")
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
    ask = f"systemctl show -P NextElapseUSecMonotonic {TIMER}"
    # While it measures, no next measurement is due.
    elapse = settled(lambda: host.run(ask).stdout.strip(), lambda due: due not in NEVER, SETTLED_WITHIN_S)
    assert elapse not in NEVER, "no next measurement is due"
