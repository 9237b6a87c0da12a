"""Names of images, the tar files of their roots, what differs between two, and their bills of materials."""

import json
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra import ROOT
from infra.checks import load
from infra.declaration import ClusterSpec
from infra.errors import BadInputError
from infra.files import checksum
from infra.ground.contract import Contract
from infra.images import recipe
from infra.images.recipe import files_of, reach, recipe_of, units_of
from infra.images.sbom import sbom
from infra.inventory.steps import Step, steps
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan
from infra.providers.local import baked, root

ON_DISK = settings(
    deadline=timedelta(seconds=10),  # each example packs a tree by a program of its own
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0\n"), min_size=1, max_size=8).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)
TREES = st.dictionaries(
    st.sampled_from("ab") | NAMES,  # two trees have to have paths in common
    st.tuples(st.binary(max_size=8), st.sampled_from([0o600, 0o644, 0o755])),
    max_size=6,
)
DATE = 1_700_000_000


def contract(**changes: Any) -> Contract:
    spec = load(ROOT / "Pulumi.local.yaml").spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for key, value in changes.items():
        if key == "count":
            spec["regions"][0]["pools"][1]["count"] = value
        else:
            spec["regions"][0][key] = value
    made = ClusterSpec.model_validate(spec)
    return build_contract(made, make_plan(made), "nobody")


def name(pool: str = "tokyo-gpu", **changes: Any) -> str:
    return recipe_of(contract(**changes), pool).name


def test_a_name_follows_from_what_is_baked_and_from_nothing_else() -> None:
    assert name() == name(count=4) == name(cidr="10.83.0.0/16")
    assert len({name(), name(timezone="Asia/Seoul"), name(locale="de_DE.UTF-8"), name("tokyo-control")}) == 4
    assert re.fullmatch("[0-9a-f]{12}", name())


def test_an_unknown_pool_is_named_with_those_that_there_are() -> None:
    with pytest.raises(BadInputError, match="no pool kyoto-gpu") as caught:
        name("kyoto-gpu")
    assert "tokyo-gpu" in caught.value.hint


def test_a_variable_is_reached_through_another_one() -> None:
    assert reach("base", {"base_extra_locales": ["eo"]})["base_extra_locales"] == ["eo"]
    assert "base_ntp_servers" not in reach("base", {"base_ntp_servers": []})


def test_a_file_that_is_copied_counts_by_what_is_in_it(tmp_path: Path) -> None:
    found = []
    for folder, key in (("a", "one"), ("b", "one"), ("b", "another")):
        file = tmp_path / folder / "key.asc"
        file.parent.mkdir(exist_ok=True)
        file.write_text(key)
        found.append(reach("cuda_base", {"cuda_base_source_key": str(file)})["cuda_base_source_key"])
    assert found[0] == found[1] != found[2]


def test_what_writes_and_installs_is_part_of_a_name() -> None:
    files = {file.name for step in recipe.baked("cuda_base") for file in files_of(step)}
    assert {"causeway-gpu.sources.j2", "causeway_cuda_base.py", "causeway_cuda.py"} <= files
    assert {"causeway_version.py", "causeway_apt.py"} <= files, "what others use, too"


@pytest.mark.parametrize(
    ("condition", "own"),
    [
        ("inventory_hostname in others", {"inventory_hostname"}),
        ("number > 1", {"number"}),
        ("indirect > 1", {"number"}),
        ("shape == 'round'", set()),
    ],
)
def test_what_is_one_hosts_own_is_told_from_what_all_have(
    monkeypatch: pytest.MonkeyPatch, condition: str, own: set[str]
) -> None:
    step = Step("base", {"ansible.builtin.apt": {"name": "x"}}, (condition,), {}, baked=True)
    monkeypatch.setattr(recipe, "baked", lambda _role: (step,))
    hosts = {name: {"number": number, "shape": "round"} for number, name in enumerate("ab")}
    groups = {"all": {"hosts": ["a", "b"], "children": [], "vars": {"indirect": "{{ number }}"}}}
    assert recipe.own_of_hosts("base", {**groups, "_meta": {"hostvars": hosts}}, ["a", "b"]) == own


@pytest.mark.parametrize(
    ("role", "unit"),
    [
        ("base", "chrony.service"),
        ("node_exporter", "prometheus-node-exporter.service"),
        ("nfs_server", "nfs-ganesha.service"),
        ("nfs_server", "nfs-server.service"),
        ("nfs_server", "rpcbind.socket"),
        ("registry", "docker-registry.service"),
    ],
)
def test_units_that_a_role_enables_or_keeps_away_wait_for_it(role: str, unit: str) -> None:
    assert unit in units_of(role)


@pytest.mark.parametrize(
    ("facts", "packages"),
    [
        ({}, {"libnfs-utils"}),
        ({"virtualization_tech_guest": ["podman"]}, {"libnfs-utils", "nfs-ganesha", "nfs-ganesha-vfs"}),
        ({"virtualization_tech_guest": []}, {"libnfs-utils", "nfs-common", "nfs-kernel-server"}),
    ],
)
def test_an_image_without_facts_has_what_both_nfs_engines_need(facts: Any, packages: set[str]) -> None:
    """And a node what its own does."""
    loader, given = DataLoader(), {"ansible_facts": facts}
    for role in ("nfs_client", "nfs_server"):
        for part in ("defaults", "vars"):
            given |= loader.load_from_file(
                str(ROOT / "roles" / role / part / "main.yml"), trusted_as_template=True
            )
    asked = "{{ __nfs_client_packages[__nfs_client_engine] + __nfs_server_kind.packages }}"
    found = Templar(loader=loader, variables=given).template(trust_as_template(asked))
    assert set(found) == packages


def test_a_role_that_enables_nothing_keeps_nothing_back() -> None:
    assert units_of("ceph_client") == set()


def test_what_stands_around_a_task_counts(tmp_path: Path) -> None:
    write(tmp_path, "r/tasks/main.yml", """
- ansible.builtin.import_tasks: all.yml
  tags: [bake]
  when: outer
- ansible.builtin.import_tasks: some.yml
- ansible.builtin.include_role: {name: helper}
- ansible.builtin.include_role: {name: helper, tasks_from: more.yml}
  tags: [bake]
  vars: {given: 1}
""")  # fmt: skip
    write(tmp_path, "r/tasks/all.yml", "- {name: a, ansible.builtin.apt: {}, when: [inner]}")
    write(tmp_path, "r/tasks/some.yml", """
- tags: bake
  become: true
  block: [{name: b, ansible.builtin.apt: {}}]
  rescue: [{name: c, ansible.builtin.apt: {}}]
- {name: d, ansible.builtin.apt: {}}
""")  # fmt: skip
    write(tmp_path, "helper/tasks/main.yml", "- {name: never, ansible.builtin.apt: {}, tags: [bake]}")
    write(tmp_path, "helper/tasks/more.yml", """
- {name: e, ansible.builtin.apt: {}, tags: [bake]}
- {name: f, ansible.builtin.apt: {}}
""")  # fmt: skip
    found = {step.task["name"]: step for step in steps("r", tmp_path)}
    assert {key for key, step in found.items() if step.baked} == {"a", "b", "c", "e"}
    assert found.keys() == {*"abcdef", "never"}
    assert found["a"].conditions == ("outer", "inner")
    assert (found["e"].role, found["e"].values) == ("helper", {"given": 1})
    assert found["b"].around[-1] == {"become": True}


def write(folder: Path, path: str, text: str) -> None:
    file = folder / "roles" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def plant(folder: Path, tree: dict[str, tuple[bytes, int]], *, backwards: bool, age_s: int) -> Path:
    folder.mkdir()
    for path, (content, mode) in sorted(tree.items(), reverse=backwards):
        (folder / path).write_bytes(content)
        (folder / path).chmod(mode)
        os.utime(folder / path, (DATE + age_s, DATE + age_s))
    return folder


@ON_DISK
@given(tree=TREES)
def test_the_same_tree_is_the_same_bytes(tmp_path_factory: pytest.TempPathFactory, tree: Any) -> None:
    folder = tmp_path_factory.mktemp("trees")
    for number in (0, 1):
        planted = plant(folder / str(number), tree, backwards=bool(number), age_s=number * 1000)
        root.pack(planted, folder / f"{number}.tar", DATE)
    assert (folder / "0.tar").read_bytes() == (folder / "1.tar").read_bytes()
    assert root.packed_checksum(planted, DATE) == checksum(folder / "1.tar")
    names = [json.loads(line.split(" ", 7)[7]) for line in root.listing(folder / "0.tar")]
    assert names[1:] == [f"./{path}" for path in sorted(tree, key=lambda path: path.encode())]


@ON_DISK
@given(tree=TREES, other=TREES)
def test_what_differs_is_named_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, tree: Any, other: Any
) -> None:
    folder = tmp_path_factory.mktemp("trees")
    texts = []
    for number, content in enumerate((tree, other)):
        planted = plant(folder / str(number), content, backwards=False, age_s=0)
        root.pack(planted, folder / f"{number}.tar", DATE)
        texts.append("\n".join(root.listing(folder / f"{number}.tar")))
    changed = {path for path in {*tree, *other} if tree.get(path) != other.get(path)}
    assert len(root.differing(texts[0], texts[1])) == len(changed)
    assert root.differing(texts[0], texts[0]) == []


def test_what_podman_mounts_and_older_files_are_as_they_were(tmp_path: Path) -> None:
    tree = plant(tmp_path / "tree", {"kept": (b"x", 0o644)}, backwards=False, age_s=-500)
    (tree / "etc").mkdir()
    (tree / "etc" / "hostname").write_text("")
    root.pack(tree, tmp_path / "root.tar", DATE)
    lines = list(root.listing(tmp_path / "root.tar"))
    assert not [line for line in lines if "hostname" in line]
    assert f" {DATE - 500} " in next(line for line in lines if line.endswith('"./kept"'))


def test_a_bill_of_materials_hangs_together() -> None:
    packages = [
        {
            "name": name,
            "version": "1:2+b1~3",
            "architecture": "amd64",
            "source": f"{name} 2",
            "sha256": checksum,
        }
        for name, checksum in (("libstdc++6", "a" * 64), ("chrony", None))
    ]
    document = sbom("0123456789ab", "b" * 64, packages, DATE)
    known = [part["SPDXID"] for part in document["packages"]]
    assert len(set(known)) == len(known) == 3
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in known)
    assert {link["relatedSpdxElement"] for link in document["relationships"]} == set(known)
    assert document["creationInfo"]["created"] == "2023-11-14T22:13:20Z"
    locators = [part["externalRefs"][0]["referenceLocator"] for part in document["packages"][1:]]
    assert locators[0] == "pkg:deb/debian/libstdc%2B%2B6@1%3A2%2Bb1~3?arch=amd64"
    assert [len(part.get("checksums", ())) for part in document["packages"]] == [1, 1, 0]


@pytest.mark.parametrize("word", ["", "..", "../../etc", "0123456789AB", "0123456789abc"])
def test_only_an_images_name_leads_to_a_folder(word: str) -> None:
    with pytest.raises(BadInputError, match="is no image's name"):
        baked.folder(word)
