"""Secrets that users give: asked for, encrypted in the stack's file, handed on as others are."""

import argparse
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from infra.checks import check_given
from infra.commands import secret as command
from infra.commands.secret import with_secret
from infra.components import secret
from infra.components.secret import GivenSecretLifecycle
from infra.declaration import ClusterSpec
from infra.errors import BadInputError, CausewayError
from infra.ground.problem import Source

INPUTS = {"stack": "s", "secret": "given-hook", "kind": "given", "value": "https://example.org/T0"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(secret, "secret_file", lambda _stack, name: tmp_path / name)
    return tmp_path


def test_another_value_is_another_file_and_another_fingerprint(folder: Path) -> None:
    first = GivenSecretLifecycle().ensure(INPUTS, {})
    file = folder / "given-hook"
    assert file.read_text() == "https://example.org/T0"
    assert file.stat().st_mode & 0o777 == 0o600
    changed = INPUTS | {"value": "https://example.org/T1\r\nand more: 'odd'"}
    second = GivenSecretLifecycle().ensure(changed, first)
    assert file.read_bytes().decode() == changed["value"]
    assert GivenSecretLifecycle().observe(changed | second) == []
    assert first["fingerprint"] != second["fingerprint"]
    assert "example" not in second["fingerprint"]
    assert "value" not in GivenSecretLifecycle.replace_on
    file.unlink()
    assert GivenSecretLifecycle().observe(changed | second) == []
    assert file.read_bytes().decode() == changed["value"], "a controller that lost it gets it back"
    GivenSecretLifecycle().remove(changed | second)
    assert not file.exists()


def test_what_is_no_name_is_not_repeated() -> None:
    hosts = {"name": "n", "role": "control", "count": 0}
    provider = {"kind": "existing", "sudo_password_secret": "Hunter 2!"}
    region = {"name": "hall", "cidr": "192.0.2.0/24", "provider": provider, "pools": [hosts]}
    spec = ClusterSpec.model_validate({"name": "c", "regions": [region]})
    assert check_given(spec, {}, "s", Source()) == []


@pytest.mark.parametrize("empty", ["", " ", "\n"])
def test_an_empty_one_is_refused(folder: Path, empty: str) -> None:
    with pytest.raises(CausewayError, match="the secret hook is empty") as caught:
        GivenSecretLifecycle().ensure(INPUTS | {"value": empty}, {})
    assert caught.value.hint == "./run exec causeway secret hook s"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("piped", "said"), [(b"\xff\xfe", "is not UTF-8 text"), (b" \n\n", "is empty"), (b"", "is empty")]
)
def test_what_cannot_be_a_secret_is_refused_before_pulumi_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, piped: bytes, said: str
) -> None:
    file = tmp_path / "Pulumi.s.yaml"
    file.write_text("config:\n  causeway:cluster: {}\n")
    monkeypatch.setattr(command, "declaration_of", lambda _stack: file)
    monkeypatch.setattr(command, "select_stack", lambda *_: pytest.fail("it went on"))
    text = io.TextIOWrapper(io.BytesIO(piped), "utf-8", errors="surrogateescape", newline="\n")
    monkeypatch.setattr("sys.stdin", text)
    with pytest.raises(BadInputError, match=said):
        command.run(argparse.Namespace(name="hook", stack="s"))


def spec_of(*names: str) -> ClusterSpec:
    receivers = [{"name": f"r{n}", "kind": "webhook", "url_secret": name} for n, name in enumerate(names)]
    control = {"name": "control", "role": "control", "count": 1}
    region = {"name": "tokyo", "cidr": "10.60.0.0/16", "pools": [control]}
    declared = {
        "name": "a",
        "regions": [region],
        "monitoring": {"kind": "prometheus", "receivers": receivers},
    }
    return ClusterSpec.model_validate(declared)


def test_a_bare_declaration_cannot_tell() -> None:
    assert check_given(spec_of("hook"), None, None, Source()) == []


def test_what_is_missing_or_plain_is_named_by_the_command_that_helps() -> None:
    config: dict[str, Any] = {"causeway:there": {"secure": "v1:x"}, "causeway:plain": "https://x"}
    missing, plain = check_given(spec_of("there", "gone", "plain"), config, "site", Source())
    assert missing.path == "monitoring.receivers[1].url_secret"
    assert "./run exec causeway secret gone site" in missing.hint
    assert "everybody" in plain.message
    assert "https://x" not in str(plain)


COMMENTS = st.sampled_from(["", "# a comment", "  # indented", "\n"])


@given(
    before=COMMENTS,
    between=COMMENTS,
    indent=st.sampled_from(["  ", "    "]),
    others=st.lists(st.sampled_from(["a", "hook-2", "hooks"]), unique=True),
)
def test_a_secret_is_put_in_beside_what_the_user_wrote(
    before: str, between: str, indent: str, others: list[str]
) -> None:
    lines = [before, "config:", between]
    for name in others:
        lines += [f"{indent}causeway:{name}:", f"{indent}  secure: v1:{name}"]
    lines += [
        f"{indent}causeway:cluster: # mine",
        f"{indent}  name: x   # spaces stay",
        "encryptionsalt: v1:s",
        "",
    ]
    text = "\n".join(lines)
    first = with_secret(text, "hook", "v1:first")
    assert first
    assert [line for line in first.splitlines() if line not in text.splitlines()] == [
        f"{indent}causeway:hook:",
        f"{indent}  secure: v1:first",
    ]
    second = with_secret(first, "hook", "v1:second")
    assert second == first.replace("v1:first", "v1:second")
    config = YAML(typ="safe", pure=True).load(second)["config"]
    assert config["causeway:hook"] == {"secure": "v1:second"}
    assert {f"causeway:{name}": {"secure": f"v1:{name}"} for name in others}.items() <= config.items()
    assert config["causeway:cluster"] == {"name": "x"}


@pytest.mark.parametrize(
    "text", ["", "config: {causeway:cluster: {name: x}}\n", "config:\n  causeway:hook: plain\n"]
)
def test_a_file_that_is_written_otherwise_is_left_to_pulumi(text: str) -> None:
    assert with_secret(text, "hook", "v1:x") is None
