"""A stack's secrets: generated once, encrypted in the state, on the controller as files (0600) for Ansible.

A role is told a file's name and reads it itself, under no_log: neither the contract nor the inventory, a
run's artifacts or a command line ever holds what is in it.

    python -m infra.handoff.secrets KIND FILE    → a secret outside of any stack, for a role's own test
"""

import os
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pulumi
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from infra import ROOT
from infra.handoff.contract import secret_file
from infra.handoff.hashes import value_hash
from infra.providers.lifecycle import Lifecycle, Managed, Properties

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


GENERATORS: Mapping[str, Callable[[], Parts]] = {
    "wireguard": wireguard,
    "random": random,
    "authority": authority,
}
"""Kind → what makes one."""


def write(path: Path, parts: Parts) -> None:
    """Write what is missing or differs; at no moment may anybody else read it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for ending, text in parts.items():
        target = path.with_name(path.name + ending)
        if not target.exists() or target.read_text(errors="replace") != text:
            part = path.with_name(f".{path.name}{ending}.part")
            part.unlink(missing_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
            part.replace(target)


class SecretLifecycle(Lifecycle):
    """One secret. The state is what counts; a file that is lost or changed is written again from it."""

    outputs = ("parts", "fingerprint")
    replace_on = ("stack", "secret", "kind")

    def identity(self, inputs: Properties) -> str:
        """One per name."""
        return f"secret/{inputs['stack']}/{inputs['secret']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """The known one, else what a killed run had written, else a new one."""
        parts = known.get("parts") or self._written(inputs) or GENERATORS[inputs["kind"]]()
        write(self._path(inputs), parts)
        return {"parts": parts, "fingerprint": value_hash(parts)}

    def observe(self, properties: Properties) -> list[str]:
        """A controller that has the state but not the files gets the files."""
        path, parts = self._path(properties), properties["parts"]
        lost = {end: text for end, text in parts.items() if not path.with_name(path.name + end).exists()}
        write(path, lost)
        changed = self._written(properties) != parts
        return [f"{path.relative_to(ROOT)} is not what the state holds"] if changed else []

    def remove(self, properties: Properties) -> None:
        """Delete the files."""
        path = self._path(properties)
        for ending in properties["parts"]:
            path.with_name(path.name + ending).unlink(missing_ok=True)

    def _path(self, properties: Properties) -> Path:
        return secret_file(properties["stack"], properties["secret"])

    def _written(self, properties: Properties) -> Parts | None:
        """The parts as the files have them; None where one is missing."""
        path = self._path(properties)
        files = {end: path.with_name(path.name + end) for end in GENERATORS[properties["kind"]]()}
        if not all(file.exists() for file in files.values()):
            return None
        return {ending: file.read_text() for ending, file in files.items()}


class Secret(Managed, module="causeway", name="Secret"):
    """A secret of the stack. `fingerprint` changes with it and tells nothing of it."""

    parts: pulumi.Output[Parts]
    fingerprint: pulumi.Output[str]

    def __init__(self, name: str, kind: str, stack: str, opts: pulumi.ResourceOptions) -> None:
        inputs = {"stack": stack, "secret": name, "kind": kind}
        secret = pulumi.ResourceOptions(additional_secret_outputs=["parts"])
        super().__init__(SecretLifecycle, name, inputs, pulumi.ResourceOptions.merge(opts, secret))


if __name__ == "__main__":
    write(Path(sys.argv[2]), GENERATORS[sys.argv[1]]())
