"""What a declared link becomes, without making one."""

from dataclasses import replace
from ipaddress import IPv4Interface

from infra.providers.local import names
from infra.providers.local.wan import Link, netem_arguments
from infra.stack import MAX_STACK

LINK = Link(
    stack="s",
    name="trans-sea",
    a="tokyo",
    b="shanghai",
    a_address=IPv4Interface("100.100.0.1/30"),
    b_address=IPv4Interface("100.100.0.2/30"),
    rtt_ms=70,
    bandwidth_mbps=100,
    loss_pct=0.2,
    mtu_bytes=1500,
)


def test_each_direction_has_half_of_the_delay_and_all_of_the_rate() -> None:
    assert LINK.one_way_ms == 35
    assert LINK.rate_bytes_s == 12_500_000
    assert netem_arguments(LINK)[3:] == ["delay", "35ms", "loss", "0.2%", "rate", "100000000bit"]


def test_a_direction_holds_what_is_under_way_and_one_bdp_of_queue() -> None:
    bdp_bytes = 12_500_000 * 0.070
    assert LINK.queue_bytes >= 1.5 * bdp_bytes
    assert LINK.queue_bytes < 2 * bdp_bytes
    packets = int(netem_arguments(LINK)[2])
    assert 1.5 * bdp_bytes <= packets * 1500 < 2 * bdp_bytes
    assert replace(LINK, rtt_ms=0.1).queue_bytes >= 64 * 1500


def test_a_long_name_does_not_outgrow_a_socket_path() -> None:
    folder = names.link_dir("s" * MAX_STACK, "l" * 63)
    # The plug's own sockets are called ".12345-00000" beside the switch's.
    assert len(f"{folder}/a/.1234567-00000") < 108
    assert folder != names.link_dir("s" * MAX_STACK, "l" * 62 + "k")
    assert names.link_dir("local", "trans-sea").name == "trans-sea"
