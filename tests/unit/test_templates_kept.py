"""What Ansible makes of a template is the same, whether it compiles it or finds it compiled."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible._internal._datatag._tags import Origin, TrustedAsTemplate, VaultedValue
from ansible._internal._templating import _jinja_bits
from ansible._internal._templating._engine import TemplateEngine, TemplateOptions
from ansible.errors import AnsibleError
from hypothesis import given
from hypothesis import strategies as st

from infra import cached
from infra.converge import templates

VARIABLES: dict[str, Any] = {"x": 3, "words": ["a\\b", "c"], "node": {"name": "gpu-1", "up": True}}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What is kept is this test's own, and Ansible is as it was afterwards."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAUSEWAY_CACHE", str(folder))
        patch.setattr(templates, "_known", {})
        kept = templates.KEPT.folder
        kept.parent.mkdir()
        patch.setattr(cached, "OURS", (Path(__file__).parent, kept.parent / "roles"))
        for name in ("compile", "compile_expression"):
            environment = _jinja_bits.AnsibleEnvironment
            patch.setattr(environment, name, getattr(environment, name))
        templates.use()
        yield kept


def trusted(text: str, path: str = __file__, *, vaulted: bool = False) -> str:
    """A text as Ansible reads it from a file."""
    tags: list[Any] = [TrustedAsTemplate(), Origin(path=path)]
    tagged = text
    for tag in [*tags, *([VaultedValue(ciphertext="x")] if vaulted else [])]:
        tagged = tag.tag(tagged)
    return tagged


def rendered(text: str, **options: Any) -> Any:
    """What becomes of a template."""
    return TemplateEngine(variables=VARIABLES).template(text, options=TemplateOptions(**options))


def another_process() -> None:
    """Forget what this one knows."""
    templates._known.clear()


def without_jinja(patch: pytest.MonkeyPatch) -> None:
    """Nothing is read or compiled by Jinja from here on."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled again")

    patch.setattr(_jinja_bits.AnsibleEnvironment, "_generate", refuse)


@pytest.mark.parametrize("forget", [False, True], ids=["this process", "another process"])
def test_a_template_is_compiled_once(monkeypatch: pytest.MonkeyPatch, forget: bool) -> None:
    text = trusted("{{ node.name }}: {{ x + 1 }}")
    assert rendered(text) == "gpu-1: 4"
    without_jinja(monkeypatch)
    if forget:
        another_process()
    assert rendered(text) == "gpu-1: 4"
    with pytest.raises(AnsibleError, match="compiled again"):
        rendered(trusted("{{ node.name }}: {{ x + 2 }}"))


@pytest.mark.parametrize("forget", [False, True], ids=["this process", "another process"])
def test_a_condition_is_compiled_once(monkeypatch: pytest.MonkeyPatch, forget: bool) -> None:
    engine = TemplateEngine(variables=VARIABLES)
    assert engine.evaluate_conditional(trusted("x > 2 and node.up"))
    without_jinja(monkeypatch)
    if forget:
        another_process()
    assert engine.evaluate_conditional(trusted("x > 2 and node.up"))
    assert not TemplateEngine(variables={**VARIABLES, "x": 1}).evaluate_conditional(
        trusted("x > 2 and node.up")
    )


def test_a_text_that_is_read_otherwise_is_another_one() -> None:
    text = trusted("{{ 'a.b' | regex_replace('[.]', '-') }}{{ words[0] == 'a\\b' }}")
    as_yaml, as_jinja = (rendered(text, escape_backslashes=escape) for escape in (True, False))
    assert as_yaml == "a-bTrue"
    assert as_jinja == "a-bFalse"
    block = trusted("{% if x %}\n  y\n{% endif %}\n")
    kept = _jinja_bits.TemplateOverrides(trim_blocks=False)
    assert rendered(block) != rendered(block, overrides=kept)
    assert rendered(block, overrides=kept) == rendered(block, overrides=kept)


def test_an_expression_is_no_template() -> None:
    text = trusted("'{{ x }}' | length")
    for _ in range(2):
        assert rendered(text) == "'3' | length"
        assert TemplateEngine(variables=VARIABLES).evaluate_expression(text) == len("{{ x }}")


def test_what_is_wrong_is_said_each_time() -> None:
    for _ in range(2):
        with pytest.raises(AnsibleError, match="Syntax error"):
            rendered(trusted("{{ x + }}"))
        with pytest.raises(AnsibleError, match="nothing_such"):
            rendered(trusted("{{ x | nothing_such }}"))
        with pytest.raises(AnsibleError, match="'absent' is undefined"):
            rendered(trusted("{{ absent }}"))


def test_no_secret_comes_to_stand_on_disk(elsewhere: Path, tmp_path: Path) -> None:
    encrypted, given = elsewhere.parent / "roles" / "secrets.yml", tmp_path / "given.yml"
    encrypted.parent.mkdir()
    encrypted.write_text("$ANSIBLE_VAULT;1.1;AES256\n6162\n")
    given.touch()
    assert rendered(trusted("{{ x }}-open")) == "3-open"
    for text in (
        trusted("{{ x }}-hidden1", vaulted=True),
        trusted("{{ x }}-hidden2", str(encrypted)),
        trusted("{{ x }}-hidden3", str(encrypted.with_name("gone.yml"))),
        trusted("{{ x }}-hidden5", str(given)),  # by `-e @FILE`
        TrustedAsTemplate().tag("{{ x }}-hidden4"),  # given on the command line
    ):
        assert rendered(text).startswith("3-hidden")
        assert rendered(text).startswith("3-hidden")
    files = list(elsewhere.iterdir())
    assert len(files) == 1
    assert b"-open" in files[0].read_bytes()
    assert elsewhere.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("content", [b"", b"\xe3", b"nonsense", b"i\x01\x00\x00\x00"])
def test_what_power_left_of_a_file_is_compiled_again(elsewhere: Path, content: bytes) -> None:
    text = trusted("{{ x }} of it")
    rendered(text)
    (file,) = elsewhere.iterdir()
    whole = file.read_bytes()
    file.write_bytes(content)
    another_process()
    assert rendered(text) == "3 of it"
    assert file.read_bytes() == whole


def test_a_disk_that_takes_nothing_is_done_without(elsewhere: Path) -> None:
    elsewhere.parent.joinpath("templates").write_text("no folder")
    assert rendered(trusted("{{ x }} here")) == "3 here"
    another_process()
    assert rendered(trusted("{{ x }} here")) == "3 here"


def test_too_much_is_halved(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates.KEPT, "most", 4)
    for number in range(6):
        rendered(trusted(f"{{{{ x }}}} {number}"))
    templates.KEPT.throw_away()
    assert len(list(elsewhere.iterdir())) == 3


PIECES = st.sampled_from(
    [
        *("{{ x }}", "{{ words }}", "{{ node.up and x > 2 }}", "{{ words | join('\\\\') }}"),
        *("{% for w in words %}{{ w }}{% endfor %}", "{% set y = x * 2 %}{{ y }}"),
        *("text\n", "\\n", "{# no #}", "{{ '{{ x }}' }}"),
    ]
)


@given(pieces=st.lists(PIECES, min_size=1, max_size=4), escape=st.booleans())
def test_any_template_comes_out_as_without(pieces: list[str], escape: bool) -> None:
    text = trusted("".join(pieces))
    first = rendered(text, escape_backslashes=escape)
    another_process()
    assert rendered(text, escape_backslashes=escape) == first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templates, "find", lambda _: None)
        assert rendered(text, escape_backslashes=escape) == first
