"""A region's registry: nodes pull by their certificates, who has the password pushes, and caches answer."""

import base64
import ctypes
import json
from functools import partial
from pathlib import Path

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask, run_anew, settled
from tests.verify.support import knock as knock_at

FOLDER = "/etc/causeway-registry"
OWN = (f"{FOLDER}/node.pem", f"{FOLDER}/node.pem.key")
REACHED_WITHIN_S = 30.0
"""Another region's registry is there once its gateways have agreed on the way."""
pytestmark = pytest.mark.deadline(REACHED_WITHIN_S + 30)

PUSH = """
import json, ssl, sys, urllib.error, urllib.request
url, authority, login = sys.argv[1:4]
context = ssl.create_default_context(cafile=authority)
names = {"Authorization": "Basic " + login} if login else {}
try:
    with urllib.request.urlopen(
        urllib.request.Request(url, b"", names, method="POST"), timeout=20, context=context
    ) as answer:
        print(json.dumps(answer.status))
except urllib.error.HTTPError as error:
    print(json.dumps(error.code))
"""


def knock(host: Host, url: str, certificate: str = "", key: str = "", body: str = "") -> dict[str, object]:
    """What the registry says to somebody on the node."""
    return knock_at(host, f"{FOLDER}/authority.pem", url, certificate, key, body)


@pytest.fixture(name="pull")
def _pull(expect: Expect) -> str:
    return f"https://{expect.registry_address}:{expect.registry_port}"


def kept(expect: Expect) -> list[str]:
    """The registries of which this one keeps what is pulled."""
    return [one["name"] for one in (*expect.registry_caches, *expect.registry_peers)]


def test_nothing_is_given_without_a_certificate(host: Host, pull: str) -> None:
    for path in ("/v2/", "/v2/_catalog"):
        found = knock(host, pull + path)
        assert "CERTIFICATE_REQUIRED" in str(found.get("refused", "")).upper().replace(" ", "_"), found


def test_a_node_pulls_and_does_not_push(host: Host, pull: str) -> None:
    assert knock(host, f"{pull}/v2/", *OWN)["status"] == 200
    assert knock(host, f"{pull}/v2/_catalog", *OWN)["status"] == 200
    assert knock(host, f"{pull}/v2/causeway/nowhere/manifests/1", *OWN) == {"status": 404}
    assert knock(host, f"{pull}/v2/causeway/nowhere/blobs/uploads/", *OWN, body="x") == {"status": 405}


def test_nobody_pushes_without_the_password(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.registry_push_username:
        verdict.not_declared("nobody pushes")
    url = f"https://{expect.registry_address}:{expect.registry_push_port}/v2/causeway/nowhere/blobs/uploads/"
    wrong = base64.b64encode(f"{expect.registry_push_username}:wrong".encode()).decode()
    for login in ("", wrong):
        assert ask(host, PUSH, url, f"{FOLDER}/authority.pem", login) == 401
    for name in kept(expect):
        mine = url.replace("causeway/nowhere", f"{name}/causeway/nowhere")
        assert ask(host, PUSH, mine, f"{FOLDER}/authority.pem", wrong) == 403, "below a cache's path"


def test_the_password_is_the_one_that_was_given(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    """The node has a hash only, so the password stays here."""
    if not expect.registry_push_username:
        verdict.not_declared("nobody pushes")
    with host.sudo():
        user, _, known = host.check_output(f"cat {FOLDER}/htpasswd").partition(":")
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    given = Path(expect.registry_push_password_file).read_bytes().rstrip(b"\r\n")
    assert (user, crypt(given, known.encode()).decode()) == (expect.registry_push_username, known)


def test_what_it_keeps_of_others_answers(host: Host, expect: Expect, pull: str) -> None:
    """Nobody has this image; a cache that does not run answers by 503."""
    for name in kept(expect):
        look = partial(knock, host, f"{pull}/v2/{name}/causeway/nowhere/manifests/1", *OWN)
        said = settled(look, lambda said: said.get("status") in (401, 404), REACHED_WITHIN_S)
        assert said.get("status") in (401, 404), f"{name}: {said}"


def test_every_process_runs_and_is_known_to_monitoring(host: Host, expect: Expect) -> None:
    names = ["pull", *(["push"] if expect.registry_push_username else []), *kept(expect)]
    for name in names:
        shown = host.run(f"systemctl show -P UnitFileState -P ActiveState causeway-registry@{name}").stdout
        assert sorted(shown.split()) == ["active", "enabled"], name
    assert host.run("systemctl is-enabled docker-registry").stdout.strip() == "masked"
    assert host.run(run_anew("causeway-registry-look")).rc == 0
    told = host.file(f"{expect.registry_textfile_dir}/causeway_registry.prom").content_string
    for name in names:
        assert f'causeway_registry_up{{process="{name}"}} 1' in told.splitlines()


def test_what_is_old_goes_by_night(host: Host, expect: Expect) -> None:
    assert host.run("systemctl is-active causeway-registry-retain.timer").stdout.strip() == "active"
    settings = json.loads(host.file(f"{FOLDER}/settings.json").content_string)
    days = (int(settings["untagged_days"]), int(settings["tagged_days"]))
    assert days == (int(expect.registry_untagged_days), int(expect.registry_tagged_days))


@pytest.mark.experiment
def test_after_a_retention_images_are_pushed_again(host: Host, expect: Expect) -> None:
    done = host.run("systemctl restart causeway-registry-retain")
    assert done.rc == 0, done.stderr
    if expect.registry_push_username:
        look = partial(host.run, "systemctl is-active causeway-registry@push")
        assert settled(look, lambda seen: seen.rc == 0, 10).rc == 0
