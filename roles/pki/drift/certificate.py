"""certificate: whether one lasts for some more days."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from infra.drift.kind import Found, How, Kind, is_flag
from infra.drift.looks import Look
from infra.drift.node import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

PEM_BEGIN, PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
ASN1_INTEGER, ASN1_UTC_TIME, ASN1_SEQUENCE, ASN1_FIRST_OPTION = 0x02, 0x17, 0x30, 0xA0
"""Tags (X.690, 8.1.2)."""
NO_CERTIFICATE = "no certificate, or only a part of one"


def look_at_certificate(node: Look, key: str, how: How) -> Found:
    """Whether it lasts for more than `how["days"]` days; None where there is none."""
    if not os.path.exists(key):
        return {"lasts": None}
    then = time.gmtime(time.time() + int(how["days"]) * 86400)
    return {"lasts": certificate_end(text_of(key)) > time.strftime("%Y%m%d%H%M%S", then)}


def certificate_end(pem: str) -> str:
    """When the first certificate of a file ends, in UTC, as YYYYMMDDhhmmss. ValueError where it has none.

    By its place in RFC 5280, 4.1. OpenSSL's own program takes 11 ms of a node to start, for each certificate.
    """
    from binascii import a2b_base64

    data = a2b_base64(pem.partition(PEM_BEGIN)[2].partition(PEM_END)[0])
    try:
        _, at, _ = asn1_part(data, 0, ASN1_SEQUENCE)
        _, at, _ = asn1_part(data, at, ASN1_SEQUENCE)
        if data[at] == ASN1_FIRST_OPTION:  # its version
            _, _, at = asn1_part(data, at)
        for tag in (ASN1_INTEGER, ASN1_SEQUENCE, ASN1_SEQUENCE):  # serial number, algorithm, issuer
            _, _, at = asn1_part(data, at, tag)
        _, at, _ = asn1_part(data, at, ASN1_SEQUENCE)
        _, _, at = asn1_part(data, at)  # since when
        tag, at, end = asn1_part(data, at)
    except IndexError:
        raise ValueError(NO_CERTIFICATE) from None
    said = data[at:end].decode("ascii").rstrip("Z")
    century = ("19" if said[:1] >= "5" else "20") if tag == ASN1_UTC_TIME else ""
    return century + said


def asn1_part(data: bytes, at: int, wanted: int = 0) -> tuple[int, int, int]:
    """What begins there: its tag, where its content begins and ends. ValueError where another is wanted."""
    tag, size, at = data[at], data[at + 1], at + 2
    if size > 0x80:
        more = size & 0x7F
        size, at = int.from_bytes(data[at : at + more], "big"), at + more
    if (wanted and tag != wanted) or at + size > len(data):
        raise ValueError(NO_CERTIFICATE)
    return tag, at, at + size


# On the controller


class Certificate(Kind):
    """A certificate, of which time alone makes a difference."""

    def explain(self, expected: Mapping[str, Any], found: Mapping[str, Any]) -> str:
        """What is to be done about it."""
        return "is gone" if found.get("lasts") is None else "has ended or ends soon, and is to be renewed"


KINDS = (Certificate("certificate", look_at_certificate, {"lasts": is_flag}, stands_alone=True),)
