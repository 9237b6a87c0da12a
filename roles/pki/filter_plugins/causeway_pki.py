"""The filter of the role pki: the controller signs certificates, and the authority's key never leaves it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLOCK_SKEW = timedelta(minutes=5)
"""A certificate holds from a little before it was made: nodes' clocks differ."""
LONGEST_SUBJECT = 64
"""RFC 5280, appendix A: ub-common-name. A longer first name stands among the alternative names only."""
LONGEST_NAME = 253
DNS_NAME = re.compile(r"(?:\*\.)?(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.(?!$)|$))+", re.IGNORECASE)
"""RFC 1123, section 2.1; the first label may be an asterisk (RFC 9525, section 6.3)."""
USAGES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}
SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
"""All that an EC key does in TLS."""


def pki_certificate(
    node: dict[str, str], authority: str, names: list[str], usages: list[str], days: int, renew_days: int
) -> str:
    """The certificate (PEM) for a node's key: the one it has, or a new one where that is not good any more.

    `node` holds `request`, a certificate request that proves that the node has its key, and `certificate`,
    which may be empty. `authority` is the path of the authority's key; its certificate is beside it (`.crt`).
    `names` are DNS names and addresses, the first of which is the subject; `usages` are of USAGES. A new one
    holds for `days`, never longer than the authority's own; one that holds for less than `renew_days` is not
    good any more, unless a new one would not last longer. ValueError says what cannot be signed, and why.
    """
    issuer = _issuer(authority)
    request = x509.load_pem_x509_csr(node["request"].encode())
    if not request.is_signature_valid:
        raise ValueError("the certificate request is not signed by the key it names")
    wanted = _extensions(names, usages)
    if _is_good(node["certificate"], request, issuer, wanted, renew_days):
        return node["certificate"]
    key = serialization.load_pem_private_key(Path(authority).read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{authority} is no EC key")
    return _issue(request, issuer, key, wanted, names[0], days)


def _issuer(authority: str) -> x509.Certificate:
    """The authority's certificate; ValueError where it cannot sign any more, or is not there."""
    file = Path(f"{authority}.crt")
    if not file.is_file():
        make = f"python -m infra.ground.secrets authority {authority}"
        raise ValueError(f"{file}: no such file, so there is no authority to sign by; `{make}` makes one")
    issuer = x509.load_pem_x509_certificate(file.read_bytes())
    if issuer.not_valid_after_utc <= datetime.now(UTC):
        end = f"{issuer.not_valid_after_utc:%Y-%m-%d}"
        raise ValueError(f"{file}: the authority has ended on {end}; make a new one and run again")
    return issuer


def _extensions(names: list[str], usages: list[str]) -> tuple[tuple[x509.ExtensionType, bool], ...]:
    """What the certificate has to say, each with whether it is critical."""
    return (
        # RFC 5280, section 4.2.1.6: critical where there is no subject.
        (x509.SubjectAlternativeName([_general(name) for name in names]), len(names[0]) > LONGEST_SUBJECT),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (SIGNS, True),
        (x509.ExtendedKeyUsage([USAGES[usage] for usage in sorted(set(usages))]), False),
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        if len(name) > LONGEST_NAME or not DNS_NAME.fullmatch(name) or name.rpartition(".")[2].isdigit():
            raise ValueError(f"{name!r} is neither a DNS name nor an address") from None
        return x509.DNSName(name)


def _is_good(
    text: str,
    request: x509.CertificateSigningRequest,
    issuer: x509.Certificate,
    wanted: tuple[tuple[x509.ExtensionType, bool], ...],
    days: int,
) -> bool:
    try:
        found = x509.load_pem_x509_certificate(text.encode())
        found.verify_directly_issued_by(issuer)
        held = [
            (found.extensions.get_extension_for_class(type(one)), one, critical) for one, critical in wanted
        ]
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    if any(has.value != one or has.critical != critical for has, one, critical in held):
        return False
    end, last = found.not_valid_after_utc, issuer.not_valid_after_utc
    lasting = end - datetime.now(UTC) > timedelta(days=days) or end == last
    return lasting and found.public_key() == request.public_key()


def _issue(
    request: x509.CertificateSigningRequest,
    issuer: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    wanted: tuple[tuple[x509.ExtensionType, bool], ...],
    name: str,
    days: int,
) -> str:
    now = datetime.now(UTC)
    signer = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    named = [x509.NameAttribute(NameOID.COMMON_NAME, name)] if len(name) <= LONGEST_SUBJECT else []
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(named))
        .issuer_name(issuer.subject)
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(min(now + timedelta(days=days), issuer.not_valid_after_utc))
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
    )
    for one, critical in wanted:
        builder = builder.add_extension(one, critical)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


class FilterModule:
    """What Ansible asks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {"pki_certificate": pki_certificate}
