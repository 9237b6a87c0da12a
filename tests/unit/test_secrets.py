"""Secrets: made once, kept by the state, on the controller for nobody but its user."""

from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from infra import stack
from infra.components import secret
from infra.components.secret import NodeSecretLifecycle, SecretLifecycle
from infra.planning.plan import one_owner_each

INPUTS = {"stack": "s", "secret": "wireguard-sea-tokyo", "kind": "wireguard"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the secrets of the stack are kept, in a checkout of the test's own."""
    for module in (stack, secret):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    return stack.secret_file("s", "x").parent


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_key_pair_is_made_once(folder: Path) -> None:
    made = SecretLifecycle().ensure(INPUTS, {})
    first = texts(folder)
    assert set(first) == {"wireguard-sea-tokyo", "wireguard-sea-tokyo.pub"}
    assert all(len(b64decode(text)) == 32 for text in first.values())
    assert len(set(first.values())) == 2
    SecretLifecycle().ensure(INPUTS, made)
    assert texts(folder) == first
    other = SecretLifecycle().ensure(INPUTS | {"secret": "other"}, {})
    assert other["parts"][""] != made["parts"][""]


def test_an_authority_signs_for_itself_and_others_only(folder: Path) -> None:
    SecretLifecycle().ensure({**INPUTS, "secret": "ca", "kind": "authority"}, {})
    key = load_pem_private_key((folder / "ca").read_bytes(), password=None)
    certificate = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    certificate.verify_directly_issued_by(certificate)
    assert certificate.public_key() == key.public_key()
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert "PRIVATE" not in (folder / "ca.crt").read_text()


def test_nobody_else_may_read_it(folder: Path) -> None:
    SecretLifecycle().ensure(INPUTS, {})
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())


def test_what_a_killed_run_had_written_is_taken_up(folder: Path) -> None:
    SecretLifecycle().ensure(INPUTS, {})
    first = texts(folder)
    assert SecretLifecycle().ensure(INPUTS, {})["parts"][""] == first["wireguard-sea-tokyo"]
    (folder / "wireguard-sea-tokyo.pub").unlink()
    SecretLifecycle().ensure(INPUTS, {})
    assert texts(folder) != first, "half a key pair is none"


def test_a_lost_file_comes_back_from_the_state_and_a_changed_one_is_named(folder: Path) -> None:
    properties = INPUTS | SecretLifecycle().ensure(INPUTS, {})
    first = texts(folder)
    key = folder / "wireguard-sea-tokyo"
    key.unlink()
    assert SecretLifecycle().observe(properties) == []
    assert texts(folder) == first
    key.write_text("AAAA")
    (said,) = SecretLifecycle().observe(properties)
    assert "AAAA" not in said
    assert first[key.name].strip() not in said
    SecretLifecycle().ensure(INPUTS, properties)
    assert texts(folder) == first


def test_the_fingerprint_changes_with_it_and_does_not_tell(folder: Path) -> None:
    one, two = (SecretLifecycle().ensure(INPUTS | {"secret": name}, {}) for name in ("one", "two"))
    assert one["fingerprint"] != two["fingerprint"]
    assert not any(one["fingerprint"] in text for text in texts(folder).values())


def test_removed_is_removed(folder: Path) -> None:
    properties = INPUTS | SecretLifecycle().ensure(INPUTS, {})
    SecretLifecycle().remove(properties)
    SecretLifecycle().remove(properties)
    assert texts(folder) == {}


NAMES = st.sampled_from(["key", "token", "ca", "consul-ca"])
KINDS = st.sampled_from(["random", "authority", "wireguard", "node"])


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.dictionaries(NAMES, KINDS)))
def test_two_capabilities_do_not_share_a_secret_by_accident(secrets: dict[str, dict[str, Any]]) -> None:
    every = [(name, owner) for owner, own in secrets.items() for name in own]
    owners = {name: [other for found, other in every if found == name] for name, _ in every}
    shared = {name for name, known in owners.items() if len(known) > 1}
    if not shared:
        assert one_owner_each(secrets) == {n: kind for own in secrets.values() for n, kind in own.items()}
        return
    with pytest.raises(ValueError, match="one renames it") as caught:
        one_owner_each(secrets)
    (name,) = (name for name in shared if f"secret {name} " in str(caught.value))
    assert all(f"one of {owner}" in str(caught.value) for owner in owners[name][:2])


def test_what_the_user_gives_may_be_read_by_several_and_is_one_secret() -> None:
    secrets: dict[str, dict[str, Any]] = {
        "a": {"given-site": "given"},
        "b": {"given-site": "given", "key": "random"},
    }
    assert one_owner_each(secrets) == {"given-site": "given", "key": "random"}


def test_a_secret_from_a_node_goes_with_the_stack_and_is_nowhere_in_its_state(folder: Path) -> None:
    inputs = {"stack": "s", "secret": "token"}
    made = NodeSecretLifecycle().ensure(inputs, {})
    folder.mkdir(parents=True)
    (folder / "token").write_text("from the node")
    assert NodeSecretLifecycle().observe(inputs | made) == []
    assert "from the node" not in str(made)
    NodeSecretLifecycle().remove(inputs)
    NodeSecretLifecycle().remove(inputs)
    assert texts(folder) == {}
