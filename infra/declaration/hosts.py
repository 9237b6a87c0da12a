"""Hosts and ports as they stand in endpoints: whether there can be such a one."""

import re
from ipaddress import IPv4Address, IPv6Address

LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
NAME = re.compile(rf"{LABEL}(\.{LABEL})*")
LONGEST_NAME = 253
LAST_PORT = 65_535


def is_host(text: str) -> bool:
    """Whether a text is a name (RFC 1123) or an IPv4 address; a name ends in no number."""
    if not NAME.fullmatch(text) or len(text) > LONGEST_NAME:
        return False
    return not text.rpartition(".")[2].isdigit() or _is(IPv4Address, text)


def is_port(text: str) -> bool:
    """Whether a text is a TCP or UDP port that can be asked."""
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= LAST_PORT


def is_authority(text: str) -> bool:
    """Whether a text is what stands before the path of a URL: a host, and a port where one is named."""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        return (
            bool(bracket) and _is(IPv6Address, host) and (not port or (port[0] == ":" and is_port(port[1:])))
        )
    host, colon, port = text.partition(":")
    return is_host(host) and (not colon or is_port(port))


def _is(kind: type[IPv4Address | IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
