"""What a node's shipper blanks before a line leaves the node: secrets of every shape that programs log.

Its expressions are PCRE; all that they use of it Python's have as well.
"""

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from tests.rendered import render

ROLE = Path(__file__).resolve().parents[2] / "roles" / "log_shipper"
FOUND = YAML(typ="safe").load((ROLE / "vars" / "main.yml").read_text())
PARTS = ("__log_shipper_name", "__log_shipper_value")


def expression(text: str) -> re.Pattern[str]:
    for part in PARTS:
        text = text.replace(f"{{{{ {part} }}}}", FOUND[part])
    assert "{{" not in text
    return re.compile(text)


PATTERNS = [(expression(one["find"]), one["put"]) for one in FOUND["__log_shipper_scrub"]]
SECRET = "sesame"  # noqa: S105 - nobody's
NAMES = (
    *("password", "PASSWD", "db_pass", "passphrase", "MYSQL_PWD", "client_secret", "SECRET_KEY", "authToken"),
    *(
        "api_key",
        "apiKey",
        "AWS_SECRET_ACCESS_KEY",
        "privateKey",
        "X-Api-Key",
        "X-Vault-Token",
        "credentials",
    ),
    *("password_hash", "session_key"),
)
SIGNS = ("=", ": ", ":", " = ", " => ", " := ", "==")
VALUES = (
    *(f"{SECRET}", f'"{SECRET}"', f"'{SECRET}'", f'"my {SECRET}"', f'"a\\"{SECRET}"', f"'a\\'{SECRET}'"),
    *(f"b'{SECRET}'", f'u"{SECRET}"', f'"{SECRET} is cut off', f"a,{SECRET}", f"a;{SECRET}", f"a&{SECRET}"),
    *(f"it's{SECRET}", f'\\"{SECRET}\\"', f'\\"a \\\\\\"{SECRET}\\"', f"{SECRET}\\"),
)
LINES = (
    f"sudo: me : PWD=/root ; USER=root ; COMMAND=/usr/bin/kubeadm join 10.0.0.1:6443 --token {SECRET}",
    f"mysql --user me --password {SECRET} --verbose",
    f"tool -password {SECRET}",
    f"tool --vault-token '{SECRET} two'",
    f"<password>{SECRET}</password>",
    f'<ns:apiKey kind="a">{SECRET}</ns:apiKey>',
    f"Authorization: Token {SECRET}",
    f'{{"Authorization": "ApiKey {SECRET}"}}',
    f"'authorization': '{SECRET}'",
    f"Cookie: a=1; session={SECRET}",
    f"Set-Cookie: id={SECRET}; Path=/",
    f"bearer {SECRET}-{SECRET}",
    f"postgres://me:{SECRET}@db/x",
    f"redis://:p@{SECRET}@db/x",
    f"HTTPS://me:{SECRET}@db/x",
    f"https://{SECRET * 4}@git.example.org/x.git",
    f"GET /x?X-Amz-Signature={SECRET}&b=1",
    f"https://hooks.slack.com/services/T0/B0/{SECRET}",
    f"found ghp_{SECRET * 4} in it",
    f"eyJhbGciOiJI.eyJzdWIiOiIx.{SECRET}",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}",
    f"-----BEGIN PGP PRIVATE KEY BLOCK-----\\n{SECRET}",
    f"b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz{SECRET}",
    f'{{"log":"{{\\"user\\":\\"me\\",\\"token\\":\\"{SECRET}\\"}}"}}',
    f'os.environ["API_TOKEN"] = "{SECRET}"',
)
LEFT = (
    "sudo: me : PWD=/root ; USER=root ; COMMAND=/usr/bin/ls --password-file /etc/x",
    "3b7c5a1f0e9d8c7b6a5948372615049382716f5e4d3c2b1a0f9e8d7c6b5a4938",
    "Accepted publickey for me from 10.0.0.1 port 22 ssh2: ED25519 SHA256:ohD8VZEXGWo6Ez8GSEJQ9WpafgLFsOfLOt",
    "GET https://example.org/a?b=1&c=2 200",
    "mail to me@example.org, see ssh://git@example.org/x",
    "the token was refused; a password is needed",
    "Started kubelet.service - the key of the house.",
)


def scrubbed(line: str) -> str:
    for pattern, put in PATTERNS:
        line = pattern.sub(put.replace("$1", r"\g<1>"), line)
    return line


@pytest.mark.parametrize("name", NAMES)
def test_what_has_a_secrets_name_is_blanked(name: str) -> None:
    for sign, value, quote in itertools.product(SIGNS, VALUES, ("", '"', "'", '\\"')):
        line = f"before {quote}{name}{quote}{sign}{value}"
        seen = scrubbed(line)
        assert SECRET not in seen, line
        assert seen.startswith("before "), line


@pytest.mark.parametrize("line", LINES)
def test_what_is_a_secret_by_its_place_or_form_is_blanked(line: str) -> None:
    assert SECRET not in scrubbed(line)


@pytest.mark.parametrize("line", LEFT)
def test_what_is_none_stays(line: str) -> None:
    assert scrubbed(line) == line


@given(st.text("a=:'\"\\ ,;&-", max_size=12), st.text(max_size=12))
def test_what_follows_a_line_does_not_bring_the_secret_back(before: str, after: str) -> None:
    assert SECRET not in scrubbed(f"{before} password={SECRET} {after}")
    assert SECRET not in scrubbed(f'{before} {{"password": "{SECRET}"}} {after}')


def test_syslog_ng_is_told_these_expressions_as_they_are(tmp_path: Path) -> None:
    """A text in single quotes has no escapes, and a backtick begins a variable."""
    assert not any(set("'`\n") & set(pattern.pattern + put) for pattern, put in PATTERNS)
    render(tmp_path, "log_shipper", {"node": {}}, only="shipper.conf")
    conf = (tmp_path / "node-shipper.conf").read_text()
    told = re.findall(r"^  subst\('(.*)', '(.*)', value", conf, re.MULTILINE)
    assert told == [(pattern.pattern, put) for pattern, put in PATTERNS]
