"""No text of a declaration says more than one text: it ends no line, closes no quote, is no option."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.declaration import ClusterSpec
from infra.ground.addresses import host_name
from infra.ground.contract import Contract
from infra.ground.problem import Source
from infra.ground.ssh import known_hosts, ssh_config
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.process import run
from tests.unit.texts import DECLARATIONS, ODD, accepted, renamed, texts, variants, with_text

PLACES = [(name, path) for name, tree in DECLARATIONS.items() for path, _ in texts(tree)]
FREE = {"authorized_keys", "ca_file", "host_key", "ssh_host_ca", "ssh_key_file", "key_file", "gpu_model"}
"""Where people write what they like, within one line; everything else is a name, or one of a few words."""

CHARACTERS = "az09 -_./@:\n\r\0\t\"'\\%${}#`\x85\u2028\xa0"


def contract_of(spec: ClusterSpec) -> Contract:
    return build_contract(spec, make_plan(spec), "local")


def field_of(path: tuple[str | int, ...]) -> str:
    return next(key for key in reversed(path) if isinstance(key, str))


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for item in value.values() for text in strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


def declared_as_text() -> set[tuple[str, str]]:
    """(model, field) of all that may be a text, by the schema of declarations."""
    schema = ClusterSpec.model_json_schema()
    models = {"ClusterSpec": schema} | schema["$defs"]
    return {
        (name, field)
        for name, model in models.items()
        for field, found in model.get("properties", {}).items()
        if "'type': 'string'" in str(found)
    }


def written_as_text(spec: Any, written: Any) -> set[tuple[str, str]]:
    """(model, field) of all texts of a declaration, beside what was made of it."""
    if isinstance(written, list):
        parts = zip(spec, written, strict=True)
        return {found for one, part in parts for found in written_as_text(one, part)}
    if not isinstance(written, dict):
        return set()
    found = {(type(spec).__name__, field) for field, value in written.items() if strings(value)}
    for field, value in written.items():
        found |= written_as_text(getattr(spec, field, None), value)
    return found


def test_the_declarations_have_every_text_there_is() -> None:
    specs = {name: accepted(tree) for name, tree in DECLARATIONS.items()}
    assert all(specs.values())
    found = {place for name, tree in DECLARATIONS.items() for place in written_as_text(specs[name], tree)}
    assert declared_as_text() <= found


def harmless(spec: ClusterSpec) -> None:
    """What a declaration hands on: each text is one line, and ssh reads what was meant."""
    contract = contract_of(spec)
    assert not [text for text in strings(contract.model_dump(mode="json")) if not text.isprintable()]
    keys = declared_keys(spec)
    jumps = {jump.address for region in contract.regions.values() for jump in region.ssh_jump}
    lines = known_hosts(contract, keys).splitlines()
    assert len(lines) == len(keys) + len(jumps)
    assert not [line for line in lines if line.startswith("#")]


def declared_keys(spec: ClusterSpec) -> dict[str, str]:
    return {
        host_name(region, pool, number): host.host_key or ""
        for region in spec.regions
        for pool in region.pools
        for number, host in enumerate(pool.hosts)
    }


def test_a_key_with_brackets_is_refused_and_has_its_parents_line() -> None:
    source = Source("a.yaml", {"": 1, "discovery.datacenters": 7})
    assert source.line_of("discovery.datacenters.x[bold]") == 7
    assert source.line_of("x]") == 1


@pytest.mark.parametrize("name", DECLARATIONS)
def test_odd_texts_are_refused_or_stay_one_text(name: str) -> None:
    tree, taken, tried = DECLARATIONS[name], set(), dict[tuple[str, str], bool]()
    turn = itertools.cycle(range(4))  # each place sees every odd text, and every way in which one gets in

    def is_taken(changed: Any, text: str, variant: str) -> bool:
        if (spec := accepted(changed)) is None or variant.strip() == text:
            return False
        harmless(spec)
        return True

    for path, text in texts(tree):
        for odd in ODD:
            variant = variants(text, odd)[next(turn)]
            alone, wherever = with_text(tree, path, variant), (text, variant)
            found = is_taken(alone, *wherever)
            # Each declaration once: a text may stand nowhere else, or was tried at another place.
            if wherever not in tried:
                everywhere = renamed(tree, text, variant)
                tried[wherever] = is_taken(everywhere, *wherever) if everywhere != alone else found
            if found or tried[wherever]:
                taken.add(field_of(path))
    assert taken <= FREE


@settings(max_examples=4 * settings().max_examples, deadline=None)
@given(st.sampled_from(PLACES), st.text(st.sampled_from(CHARACTERS), max_size=6))
def test_whatever_is_added_to_a_text(place: tuple[str, tuple[str | int, ...]], odd: str) -> None:
    name, path = place
    tree = DECLARATIONS[name]
    for variant in variants(dict(texts(tree))[path], odd):
        if (spec := accepted(with_text(tree, path, variant))) is not None:
            harmless(spec)


@pytest.mark.parametrize("odd", [text for text in ODD if "\ud800" not in text])
def test_ssh_reads_the_user_and_the_key_that_are_declared(odd: str, tmp_path: Any) -> None:
    tree = DECLARATIONS["machines"]
    for field, keyword in (("ssh_user", "user"), ("ssh_key_file", "identityfile")):
        for variant in variants("/keys/ada" if field == "ssh_key_file" else "ada", odd):
            spec = accepted(with_text(tree, ("regions", 0, "provider", field), variant))
            if spec is None:
                continue
            file = tmp_path / "config"
            file.write_text(ssh_config(contract_of(spec)))
            said = run(["ssh", "-G", "-F", str(file), "tokyo-control-0"]).splitlines()
            values = [line.partition(" ")[2] for line in said if line.split(" ")[0] == keyword]
            assert len(values) == 1
            assert values[0].endswith(variant)
            assert not [line for line in said if line.startswith("proxycommand")]
