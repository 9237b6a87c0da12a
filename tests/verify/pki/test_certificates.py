"""What the role pki gave a unit: a certificate that others believe, for its names and its uses.

The unit is that of the role's own test (roles/pki/molecule/user): on real nodes the checks of the roles that
include this one look at theirs.
"""

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask

pytestmark = pytest.mark.deadline(40)

FOLDER = "/etc/pki-user"

# What a client that believes the authority in argv[1] says of the name in argv[2]; "" where all is well.
CONNECT = """
import json, socket, ssl, sys
context = ssl.create_default_context(cadata=sys.argv[1])
try:
    with socket.create_connection(("127.0.0.1", 8444), timeout=10) as link:
        context.wrap_socket(link, server_hostname=sys.argv[2])
    print(json.dumps(""))
except ssl.SSLCertVerificationError as error:
    print(json.dumps(error.verify_message))
"""


def authority(host: Host) -> str:
    """The authority's certificate: what the unit's own was signed by."""
    return str(host.file(f"{FOLDER}/authority.pem").content_string)


def text_of(host: Host, *options: str) -> str:
    done = host.run(f"openssl x509 -in {FOLDER}/certificate.pem -noout {' '.join(options)}")
    assert done.rc == 0, done.stderr
    return str(done.stdout)


def test_a_client_that_believes_the_authority_believes_the_unit(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if not expect.pki_authority_certificate:
        verdict.not_declared("the authority's certificate is on the controller only")
    for name in (expect.host_name, "localhost", "127.0.0.1"):
        assert ask(host, CONNECT, authority(host), name) == "", name
    assert "mismatch" in ask(host, CONNECT, authority(host), "another.example")


def test_the_unit_answers_with_the_certificate_that_is_installed(host: Host) -> None:
    shown = host.run("openssl s_client -connect 127.0.0.1:8444 </dev/null 2>/dev/null | openssl x509")
    assert shown.rc == 0, shown.stderr
    assert shown.stdout.strip() in host.file(f"{FOLDER}/certificate.pem").content_string


def test_it_holds_for_as_long_as_asked(host: Host, expect: Expect) -> None:
    text_of(host, "-checkend", str(expect.pki_renew_days * 86400))
    longer = host.run(f"openssl x509 -in {FOLDER}/certificate.pem -noout -checkend {expect.pki_days * 86400}")
    assert longer.rc == 1


def test_it_is_for_what_was_asked(host: Host, expect: Expect) -> None:
    words = {"server": "TLS Web Server Authentication", "client": "TLS Web Client Authentication"}
    said = text_of(host, "-ext", "extendedKeyUsage")
    assert {usage for usage, word in words.items() if word in said} == set(expect.pki_usages)


def test_the_key_belongs_to_whom_it_should(host: Host, expect: Expect) -> None:
    key = host.file(f"{FOLDER}/key.pem")
    assert (key.user, key.group, f"{key.mode:04o}") == (expect.pki_owner, expect.pki_group, expect.pki_mode)
    public = host.run(f"openssl pkey -in {FOLDER}/key.pem -pubout")
    assert public.stdout == text_of(host, "-pubkey")
    assert [name for name in host.file(FOLDER).listdir() if name.endswith(".part")] == []
