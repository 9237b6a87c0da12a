"""A link that is not as declared fails the verification, whatever the probe has written."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.verify.wan_gateway import test_measurement as check

LINK = {"name": "sea", "gateway": "10.0.0.1", "rtt_ms": 70, "mtu_bytes": 1500}


def measured(**changes: float) -> str:
    """The probe's metrics of a link that is as declared, but for the changes."""
    found = {"up": 1, "rtt_seconds": 0.071, "loss_ratio": 0, "mtu_bytes": 1500}
    declared = {"declared_mtu_bytes": 1500, "declared_rtt_seconds": 0.07}
    lines = [
        f'causeway_wan_link_{name}{{link="sea"}} {value}'
        for name, value in (found | declared | changes).items()
    ]
    return "\n".join(["causeway_wan_probe_timestamp_seconds 100", *lines])


def look(metrics: str) -> None:
    host: Any = SimpleNamespace()
    host.run = lambda command: SimpleNamespace(rc=0, stderr="", stdout="99" if "date" in command else metrics)
    expect: Any = SimpleNamespace(
        wan_gateway_metrics_dir="/m", wan_gateway_links=[LINK], wan_gateway_address=LINK["gateway"]
    )
    verdict: Any = None
    check.test_every_link_is_measured(host, expect, verdict)


def test_a_link_as_declared_passes() -> None:
    look(measured())


@pytest.mark.parametrize(
    "changes",
    [{"up": 0}, {"rtt_seconds": 0}, {"rtt_seconds": 0.14}, {"loss_ratio": 1}, {"mtu_bytes": 1400}],
    ids=str,
)
def test_a_link_that_is_not_as_declared_fails(
    changes: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "SETTLED_WITHIN_S", 0)
    with pytest.raises(AssertionError, match="sea: "):
        look(measured(**changes))
