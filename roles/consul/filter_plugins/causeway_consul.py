"""Filters of the role consul: what is made on the controller, from secrets that never leave it."""

from __future__ import annotations

import hashlib
import hmac
import uuid
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


def consul_token(seed: str, purpose: str) -> str:
    """The token for a purpose: a UUID that only those can tell who know the seed (HMAC-SHA256)."""
    digest = hmac.new(seed.strip().encode(), purpose.encode(), hashlib.sha256).digest()
    return str(uuid.UUID(bytes=digest[:16], version=4))


def consul_tokens(seed: str, purposes: list[str]) -> dict[str, dict[str, str]]:
    """Purpose → its token (`secret`), and the public name by which that is changed or taken (`accessor`)."""
    return {
        purpose: {
            "secret": consul_token(seed, purpose),
            "accessor": consul_token(seed, f"accessor {purpose}"),
        }
        for purpose in purposes
    }


def consul_certificate(
    node: dict[str, str], authority: str, names: list[str], days: int, renew_days: int
) -> str:
    """The certificate (PEM) for a node's key: the one it has, or a new one where that is not good any more.

    `node` holds `request`, a certificate request that proves that the node has its key, and `certificate`,
    which may be empty. `authority` is the path of the CA's key; its certificate is beside it (`.crt`).
    `names` are DNS names and addresses, the first of which is the subject.
    """
    issuer = x509.load_pem_x509_certificate(Path(f"{authority}.crt").read_bytes())
    request = x509.load_pem_x509_csr(node["request"].encode())
    if not request.is_signature_valid:
        raise ValueError("the certificate request is not signed by the key it names")
    if _is_good(node["certificate"], request, issuer, names, renew_days):
        return node["certificate"]
    key = serialization.load_pem_private_key(Path(authority).read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{authority} is no EC key")
    return _issue(request, issuer, key, names, days)


def _is_good(
    text: str, request: x509.CertificateSigningRequest, issuer: x509.Certificate, names: list[str], days: int
) -> bool:
    try:
        found = x509.load_pem_x509_certificate(text.encode())
        found.verify_directly_issued_by(issuer)
        held = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    lasting = found.not_valid_after_utc - datetime.now(UTC) > timedelta(days=days)
    return lasting and found.public_key() == request.public_key() and held == _alternative(names)


def _alternative(names: list[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_general(name) for name in names])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _issue(
    request: x509.CertificateSigningRequest,
    issuer: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    names: list[str],
    days: int,
) -> str:
    now = datetime.now(UTC)
    signer = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
        .issuer_name(issuer.subject)
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(min(now + timedelta(days=days), issuer.not_valid_after_utc))
        .add_extension(_alternative(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


class FilterModule:
    """What Ansible asks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name → filter."""
        return {
            "consul_token": consul_token,
            "consul_tokens": consul_tokens,
            "consul_certificate": consul_certificate,
        }
