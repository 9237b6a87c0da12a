"""What a stack's secrets consist of: generated once, on the controller as files (0600) for Ansible.

A role is told a file's name and reads it itself, under no_log: neither the contract nor the inventory, a
run's artifacts or a command line ever holds what is in it.

    python -m infra.ground.secrets KIND FILE    → a secret outside of any stack, for a role's own test
"""

import os
import struct
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from infra.files import value_hash, write_private

Parts = dict[str, str]
"""What a secret consists of: the ending of each file's name → its text."""
AUTHORITY_LASTS = timedelta(days=3650)
SIGNS_CERTIFICATES = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def wireguard() -> Parts:
    """A key pair for one end of a WireGuard tunnel, as `wg genkey` and `wg pubkey` write them."""
    key = X25519PrivateKey.generate()
    raw = {"": key.private_bytes_raw(), ".pub": key.public_key().public_bytes_raw()}
    return {ending: b64encode(part).decode() + "\n" for ending, part in raw.items()}


def random() -> Parts:
    """32 random bytes as base64: a key for symmetric encryption, or what tokens are told from."""
    return {"": b64encode(os.urandom(32)).decode() + "\n"}


def cephx() -> Parts:
    """A key as Ceph's identities have them: type (AES), time of making, length, 16 random bytes; base64.

    Little-endian, as `CryptoKey::encode` in Ceph's src/auth/Crypto.cc writes it.
    """
    now = datetime.now(UTC)
    head = struct.pack("<HIIH", 1, int(now.timestamp()), now.microsecond * 1000, 16)
    return {"": b64encode(head + os.urandom(16)).decode() + "\n"}


def authority() -> Parts:
    """A certificate authority's key (EC, P-256), and its certificate, which is no secret."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Causeway {os.urandom(4).hex()}")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + AUTHORITY_LASTS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(SIGNS_CERTIFICATES, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {"": key.private_bytes(*plain).decode(), ".crt": certificate.public_bytes(Encoding.PEM).decode()}


GIVEN = "given-"
"""What the names of secrets begin with that users give: theirs is the rest, and no other's name is taken."""
GENERATORS: Mapping[str, Callable[[], Parts]] = {
    "wireguard": wireguard,
    "random": random,
    "cephx": cephx,
    "authority": authority,
}
"""Kind → what makes one."""
ENDINGS: Mapping[str, tuple[str, ...]] = {
    "wireguard": ("", ".pub"),
    "random": ("",),
    "cephx": ("",),
    "authority": ("", ".crt"),
    "given": ("",),
}
"""Kind → the endings of its files."""


def write(path: Path, parts: Parts) -> None:
    """Write what is missing or differs; at no moment may anybody else read it."""
    for ending, text in parts.items():
        target = path.with_name(path.name + ending)
        if not target.exists() or _text(target) != text:
            write_private(target, text)


def read(path: Path, kind: str) -> Parts | None:
    """A secret as its files have it; None where one is missing."""
    files = {ending: path.with_name(path.name + ending) for ending in ENDINGS[kind]}
    if not all(file.exists() for file in files.values()):
        return None
    return {ending: _text(file) for ending, file in files.items()}


def _text(file: Path) -> str:
    """As it stands: `read_text` makes other line ends of those that a user may have given."""
    return file.read_bytes().decode(errors="replace")


def fingerprint(parts: Parts) -> str:
    """Changes with a secret, and tells nothing of it."""
    return value_hash(parts)


if __name__ == "__main__":
    write(Path(sys.argv[2]), GENERATORS[sys.argv[1]]())
