"""Keys and certificates of the role pki: others believe what is issued, and nothing else; the good stay."""

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from infra.drift.kinds import kind_of
from infra.drift.looks import Look
from infra.ground import secrets
from tests.loaded import load

ROLE = Path(__file__).resolve().parents[2] / "roles" / "pki"
NAMES = ["client.tokyo.consul", "tokyo-gpu-0", "localhost", "127.0.0.1", "10.81.32.0", "fd00::1"]
BOTH = ["server", "client"]
RSA, EC = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())
Sign = Callable[..., str]


FILTERS = load(ROLE / "filter_plugins" / "causeway_pki.py")


def request(folder: Path, name: str = "node") -> str:
    """A certificate request, made the way a node makes it."""
    key = folder / f"{name}.pem"
    make = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key)]
    if not key.exists():
        subprocess.run(make, check=True, capture_output=True)
    words = ["openssl", "req", "-new", "-key", str(key), "-subj", "/CN=node"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority `ca` and another one, and a node's key."""
    found = tmp_path_factory.mktemp("pki")
    for name in ("ca", "other"):
        secrets.write(found / name, secrets.authority())
    request(found)
    return found


@pytest.fixture(scope="module")
def sign(folder: Path) -> Sign:
    """`sign(certificate)` → the certificate that the node is given, for 100 days, renewed below 40."""
    asked = request(folder)

    def signed(certificate: str = "", *, days: int = 100, renew: int = 40, **changes: Any) -> str:
        node = {"request": asked, "certificate": certificate}
        values = {"node": node, "authority": str(folder / "ca"), "names": NAMES, "usages": BOTH}
        return str(FILTERS.pki_certificate(**{**values, "days": days, "renew_days": renew, **changes}))

    return signed


def read(text: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(text.encode())


def believed(folder: Path, text: str, name: str, *, ca: str = "ca", at: datetime | None = None) -> bool:
    """Whether a client that believes an authority takes the certificate for a server's of that name."""
    try:
        wanted: x509.verification.Subject = x509.IPAddress(ip_address(name))
    except ValueError:
        wanted = x509.DNSName(name)
    try:
        policy(folder, ca, at).build_server_verifier(wanted).verify(read(text), [])
    except VerificationError:
        return False
    return True


def believed_of_a_client(folder: Path, text: str) -> bool:
    try:
        policy(folder, "ca", None).build_client_verifier().verify(read(text), [])
    except VerificationError:
        return False
    return True


def policy(folder: Path, ca: str, at: datetime | None) -> PolicyBuilder:
    store = Store([read((folder / f"{ca}.crt").read_text())])
    return PolicyBuilder().store(store).time(at or datetime.now(UTC))


LABELS = st.from_regex(r"[a-z]([a-zA-Z0-9-]{0,30}[a-z0-9])?", fullmatch=True)
DNS_NAMES = st.lists(LABELS, min_size=1, max_size=6).map(".".join)
WILDCARDS = st.lists(LABELS, min_size=2, max_size=3).map(lambda labels: ".".join(["*", *labels]))
ADDRESSES = st.ip_addresses().map(str)
ASKED = st.lists(DNS_NAMES | WILDCARDS | ADDRESSES, min_size=1, max_size=6)
USAGES = st.lists(st.sampled_from(BOTH), min_size=1, max_size=2, unique=True)


@given(ASKED, USAGES, st.integers(1, 5000), DNS_NAMES | ADDRESSES)
@example([".".join(["long"] * 20), "short.example"], BOTH, 100, "other.example")
@settings(max_examples=60)
def test_what_is_issued_is_believed_for_its_names_and_its_time_and_no_other(
    folder: Path, sign: Sign, names: list[str], usages: list[str], days: int, stranger: str
) -> None:
    text = sign(names=names, usages=usages, days=days, renew=0)
    held = [name.replace("*", "some", 1) for name in names]
    is_server = "server" in usages
    assert {believed(folder, text, name) for name in held} == {is_server}
    assert believed_of_a_client(folder, text) == ("client" in usages)
    end = read(text).not_valid_after_utc
    assert believed(folder, text, held[0], at=end) == is_server
    assert not believed(folder, text, held[0], at=end + timedelta(seconds=1))
    assert not believed(folder, text, held[0], at=datetime.now(UTC) - timedelta(minutes=10))
    assert not believed(folder, text, held[0], ca="other")
    covered = {name.lower() for name in held}
    parents = {name[2:].lower() for name in names if name.startswith("*.")}
    if stranger.lower() not in covered and stranger.lower().partition(".")[2] not in parents:
        assert not believed(folder, text, stranger)
    assert sign(text, names=names, usages=usages, days=days, renew=0) == text, "what is good stays"


@given(st.integers(1, 5000), st.integers(0, 5000))
@settings(max_examples=40)
def test_a_certificate_is_renewed_exactly_when_it_lasts_for_too_few_days(
    folder: Path, sign: Sign, days: int, renew: int
) -> None:
    first = sign(days=days)
    end, last = read(first).not_valid_after_utc, read((folder / "ca.crt").read_text()).not_valid_after_utc
    assert end <= last, "it ends with its authority"
    stays = days > renew or end == last
    assert (sign(first, days=days, renew=renew) == first) == stays


NOT_NAMES = [
    "",
    "a b",
    "-a.example",
    "a..example",
    "a.example.",
    "ä.example",
    "*",
    "a.*.example",
    "10.0.0.256",
]


@pytest.mark.parametrize("name", [*NOT_NAMES, "a" * 64, ".".join(["a" * 50] * 6)])
def test_what_no_client_could_ask_for_is_refused(sign: Sign, name: str) -> None:
    with pytest.raises(ValueError, match="is neither a DNS name nor an address"):
        sign(names=["good.example", name])


def test_a_certificate_holds_for_the_names_and_the_nodes_own_key(folder: Path, sign: Sign) -> None:
    made = read(sign())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == NAMES[:3]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == NAMES[3:]
    made.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)  # Python 3.13 takes none without it
    assert made.public_key() == x509.load_pem_x509_csr(request(folder).encode()).public_key()
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days == 100


def test_a_certificate_that_is_not_as_asked_for_is_renewed(folder: Path, sign: Sign) -> None:
    first = sign()
    assert sign("") != first
    assert sign("no certificate") != first
    assert sign(first, names=[*NAMES, "10.81.32.9"]) != first
    assert sign(first, usages=["server"]) != first
    assert sign(first, authority=str(folder / "other")) != first
    other = {"request": request(folder, "new"), "certificate": first}
    assert sign(node=other) != first, "the node has another key"
    assert sign(first, usages=["client", "server"]) == first, "in whatever order"


def test_a_certificate_that_an_older_version_issued_is_renewed(folder: Path, sign: Sign) -> None:
    """It said nothing of what its key may do."""
    first = read(sign())
    key = serialization.load_pem_private_key((folder / "ca").read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    kept = [one for one in first.extensions if not isinstance(one.value, x509.KeyUsage)]
    older = x509.CertificateBuilder(
        first.issuer, first.subject, first.public_key(), first.serial_number,
        first.not_valid_before_utc, first.not_valid_after_utc, kept,
    ).sign(key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()  # fmt: skip
    renewed = sign(older)
    assert renewed != older
    uses = read(renewed).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(uses) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}


def test_an_expired_certificate_is_renewed(sign: Sign) -> None:
    expired = sign(days=0)
    assert sign(expired, renew=0) != expired


def test_a_request_that_its_key_has_not_signed_is_refused(folder: Path, sign: Sign) -> None:
    made = bytearray(x509.load_pem_x509_csr(request(folder).encode()).public_bytes(Encoding.DER))
    made[-1] ^= 1  # the last byte of the signature
    label = "CERTIFICATE REQUEST-----"
    changed = f"-----BEGIN {label}\n{b64encode(made).decode()}\n-----END {label}\n"
    with pytest.raises(ValueError, match="not signed by the key it names"):
        sign(node={"request": changed, "certificate": ""})


def test_an_authority_that_cannot_sign_is_named(
    tmp_path: Path, sign: Sign, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = str(tmp_path / "gone")
    with pytest.raises(ValueError, match=r"gone\.crt: no such file.*infra\.ground\.secrets authority"):
        sign(authority=authority)
    secrets.write(Path(authority), secrets.authority())
    plain = (Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    Path(authority).write_bytes(rsa.generate_private_key(65537, 2048).private_bytes(*plain))
    with pytest.raises(ValueError, match="gone is no EC key"):
        sign(authority=authority)
    monkeypatch.setattr(secrets, "AUTHORITY_LASTS", timedelta(hours=-1))
    secrets.write(Path(authority), secrets.authority())
    with pytest.raises(ValueError, match=r"the authority has ended on \d{4}-\d\d-\d\d"):
        sign(authority=authority)


# On the node

Key = Callable[..., dict[str, Any]]


@pytest.fixture
def make_key(tmp_path: Path) -> Key:
    """Runs the module as Ansible does on a node; its result."""
    owner = {"owner": Path("/").owner(), "group": Path("/").group()}
    there = {"path": str(tmp_path / "key.pem"), "certificate": str(tmp_path / "certificate.pem")}

    def run(
        *, check: bool = False, expect: int = 0, programs: str = "/usr/bin:/bin", **changes: str
    ) -> dict[str, Any]:
        given = {**there, **owner, "mode": "0640", **changes, "_ansible_check_mode": check}
        done = subprocess.run(
            [sys.executable, ROLE / "library" / "causeway_pki_key.py"],
            input=json.dumps({"ANSIBLE_MODULE_ARGS": given}),
            env={"PATH": programs},
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        assert "PRIVATE KEY" not in done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    return run


def test_a_key_is_made_once_and_stays(make_key: Key, tmp_path: Path) -> None:
    planned = make_key(check=True)
    assert planned["changed"]
    assert planned["node"] == {"request": "", "certificate": ""}
    assert list(tmp_path.iterdir()) == []
    first = make_key()
    assert first["changed"]
    key = tmp_path / "key.pem"
    assert f"{key.stat().st_mode & 0o777:04o}" == "0640"
    text = key.read_text()
    again = make_key()
    assert not again["changed"]
    assert key.read_text() == text
    assert make_key(mode="0600")["changed"]
    assert make_key(mode="0600", path=str(tmp_path / "other.pem"))["changed"], "by its making alone"
    (tmp_path / "other.pem").unlink()
    assert f"{key.stat().st_mode & 0o777:04o}" == "0600"
    assert list(tmp_path.iterdir()) == [key]
    assert again["governs"] == [{"kind": "file", "key": str(key), "how": {"generated": True}}]
    made = x509.load_pem_x509_csr(again["node"]["request"].encode())
    held = serialization.load_pem_private_key(text.encode(), password=None)
    assert made.is_signature_valid
    assert made.public_key() == held.public_key()


def test_what_is_no_key_is_made_anew(make_key: Key, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text("-----BEGIN PRIVATE KEY-----\ncut off")
    assert make_key(check=True)["changed"]
    assert key.read_text().endswith("cut off")
    found = make_key()
    assert found["changed"]
    assert found["node"]["request"]


def test_where_no_key_can_be_the_reason_is_said_and_nothing_is_left(make_key: Key, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "none" / "key.pem")
    assert "none is not there" in make_key(path=nowhere, expect=1)["msg"]
    assert make_key(path=nowhere, check=True)["changed"], "a folder that check mode has not made"
    assert list(tmp_path.iterdir()) == []
    assert "is a directory" in make_key(path=str(tmp_path), expect=1)["msg"]
    assert "openssl" in make_key(programs="/none", expect=1)["cmd"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("days", "lasts"), [(99, True), (101, False)])
def test_a_scan_sees_that_a_certificate_ends_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: Sign, days: int, lasts: bool
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])  # a look sets its own
    file, kind = tmp_path / "certificate.pem", kind_of("certificate", "")
    look = kind.look
    assert look
    node = Look.__new__(Look)  # it asks nothing of it
    assert look(node, str(file), {"days": days}) == {"lasts": None}
    said = [kind.explain({"lasts": True}, {"lasts": now}) for now in (None, False)]
    assert said == ["is gone", "has ended or ends soon, and is to be renewed"]
    file.write_text(sign())
    assert look(node, str(file), {"days": str(days)}) == {"lasts": lasts}
    file.write_text("no certificate")
    with pytest.raises(ValueError, match="no certificate"):
        look(node, str(file), {"days": days})


DRIFT = load(ROLE / "drift" / "certificate.py")


@settings(max_examples=50)
@given(
    end=st.datetimes(datetime(1960, 1, 1), datetime(9999, 12, 31)),
    issuer=st.text(min_size=1, max_size=60),
    serial=st.integers(1, (1 << 159) - 1),
    is_rsa=st.booleans(),
    cut=st.floats(0, 1),
)
def test_the_end_is_read_as_the_library_reads_it(
    end: datetime, issuer: str, serial: int, is_rsa: bool, cut: float
) -> None:
    key = RSA if is_rsa else EC
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), serial, datetime(1955, 1, 1), end)
    made = builder.sign(key, hashes.SHA256())
    text = "What stands before it is not of it.\n" + made.public_bytes(Encoding.PEM).decode()
    assert DRIFT.certificate_end(text) == made.not_valid_after_utc.strftime("%Y%m%d%H%M%S")
    lines = text.splitlines()[1:-1]
    part = "\n".join([lines[0], *lines[1 : 1 + int(cut * (len(lines) - 1))]])
    with suppress(ValueError):  # and nothing else
        DRIFT.certificate_end(part)
