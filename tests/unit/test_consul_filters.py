"""What the role consul makes on the controller: tokens and certificates."""

import importlib.util
import subprocess
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from uuid import UUID

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from infra.ground import secrets

CODE = Path(__file__).resolve().parents[2] / "roles" / "consul" / "filter_plugins" / "causeway_consul.py"
NAMES = ["client.tokyo.consul", "tokyo-gpu-0", "localhost", "127.0.0.1", "10.81.32.0"]
Sign = Callable[..., str]


@pytest.fixture(scope="module")
def filters() -> ModuleType:
    spec = importlib.util.spec_from_file_location("causeway_consul_filters", CODE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def authority(tmp_path: Path) -> str:
    secrets.write(tmp_path / "ca", secrets.authority())
    return str(tmp_path / "ca")


def request(folder: Path, name: str = "node") -> str:
    """A certificate request, made the way a node makes it."""
    key = folder / f"{name}.pem"
    make = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key)]
    if not key.exists():
        subprocess.run(make, check=True)
    words = ["openssl", "req", "-new", "-key", str(key), "-subj", "/CN=node"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def sign(filters: ModuleType, authority: str, tmp_path: Path) -> Sign:
    """`sign(certificate)` → the certificate that the node is given, for 100 days, renewed below 40."""

    def signed(certificate: str = "", *, days: int = 100, renew: int = 40, **changes: object) -> str:
        asked = {"node": {"request": request(tmp_path), "certificate": certificate}, "authority": authority}
        values = {**asked, "names": NAMES, "days": days, "renew_days": renew, **changes}
        return str(filters.consul_certificate(**values))

    return signed


def test_a_token_is_a_uuid_of_its_secret_and_its_purpose(filters: ModuleType) -> None:
    one, same = (filters.consul_token(seed, "tokyo-gpu") for seed in ("c2VjcmV0\n", "c2VjcmV0"))
    assert one == same
    assert UUID(one).version == 4
    others = {
        filters.consul_token("c2VjcmV0", "tokyo-control"),
        filters.consul_token("b3RoZXI=", "tokyo-gpu"),
    }
    assert one not in others
    assert len(others) == 2
    token = filters.consul_tokens("c2VjcmV0", ["tokyo-gpu"])["tokyo-gpu"]
    assert token["secret"] == one != token["accessor"]


def test_a_certificate_holds_for_the_names_and_the_nodes_own_key(sign: Sign, tmp_path: Path) -> None:
    made = x509.load_pem_x509_certificate(sign().encode())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == NAMES[:3]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == NAMES[3:]
    made.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)  # Python 3.13 takes none without it
    assert made.public_key() == x509.load_pem_x509_csr(request(tmp_path).encode()).public_key()
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days == 100


def test_a_good_certificate_stays(sign: Sign) -> None:
    first = sign()
    assert sign(first) == first


def test_a_certificate_that_is_not_good_any_more_is_renewed(sign: Sign, tmp_path: Path) -> None:
    first = sign()
    secrets.write(tmp_path / "other", secrets.authority())
    assert sign("") != first
    assert sign("no certificate") != first
    assert sign(first, renew=100) != first, "near its end"
    assert sign(first, names=[*NAMES, "10.81.32.9"]) != first
    assert sign(first, authority=str(tmp_path / "other")) != first
    other = {"request": request(tmp_path, "new"), "certificate": first}
    assert sign(node=other) != first, "the node has another key"


def test_an_expired_certificate_is_renewed(sign: Sign) -> None:
    expired = sign(days=0)
    assert sign(expired, renew=0) != expired


def test_a_request_that_its_key_has_not_signed_is_refused(sign: Sign, tmp_path: Path) -> None:
    made = bytearray(x509.load_pem_x509_csr(request(tmp_path).encode()).public_bytes(Encoding.DER))
    made[-1] ^= 1  # the last byte of the signature
    label = "CERTIFICATE REQUEST-----"
    changed = f"-----BEGIN {label}\n{b64encode(made).decode()}\n-----END {label}\n"
    with pytest.raises(ValueError, match="not signed by the key it names"):
        sign(node={"request": changed, "certificate": ""})
