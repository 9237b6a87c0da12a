"""A gate lets in who has a certificate of the right authority, for the right use, and nobody else.

The service behind it is that of the role's own test (roles/tls_gate/molecule/user): on real nodes the checks
of the roles that include this one knock at theirs.
"""

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, knock

pytestmark = pytest.mark.deadline(40)

FOLDER = "/etc/gate-user"


def said(host: Host, expect: Expect, client: str = "") -> dict[str, object]:
    """What the gate says to a client that has a certificate and a key below this name."""
    certificate = f"{FOLDER}/{client}.pem" if client else ""
    key = f"{FOLDER}/certificate.pem.key" if client == "certificate" else f"{FOLDER}/{client}-key.pem"
    return knock(host, f"{FOLDER}/authority.pem", f"https://{expect.address}:8443/", certificate, key)


def test_who_has_a_certificate_gets_what_the_service_says(host: Host, expect: Expect) -> None:
    found = said(host, expect, "client")
    assert found["status"] == 200
    assert "Directory listing" in str(found["said"])


@pytest.mark.parametrize("client", ["", "stranger", "certificate"])
def test_nobody_else_is_let_in(host: Host, expect: Expect, client: str) -> None:
    """Without a certificate, with another authority's, with the gate's own, which is a server's."""
    assert "refused" in said(host, expect, client)


def test_it_listens_where_it_should(host: Host, expect: Expect) -> None:
    shown = host.run("ss --no-header --listening --tcp --numeric 'sport = :8443'").stdout.splitlines()
    assert [line.split()[3] for line in shown] == [f"{expect.address}:8443"]


def test_its_certificate_is_for_its_names(host: Host, expect: Expect) -> None:
    shown = host.run(f"openssl x509 -in {FOLDER}/certificate.pem -noout -ext subjectAltName").stdout
    assert all(name in shown for name in expect.tls_gate_names)


def test_it_takes_as_many_as_it_was_told(host: Host, expect: Expect) -> None:
    assert f"maxconn {expect.tls_gate_connections}" in host.file(f"{FOLDER}/gate.cfg").content_string


def test_its_key_is_roots(host: Host) -> None:
    file = host.file(f"{FOLDER}/certificate.pem.key")
    assert (file.user, file.mode) == ("root", 0o600)


def test_it_comes_back(host: Host) -> None:
    shown = host.run("systemctl show -P Restart -P UnitFileState -P ActiveState gate-user-gate").stdout
    assert sorted(shown.split()) == ["active", "always", "enabled"]
