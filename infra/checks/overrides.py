"""Role variables set beside the declaration, where they would part a region's hosts from its switches.

Ansible lets `inventories/<stack>/{group_vars,host_vars}` override what the contract says. For the marking of
RDMA traffic that changes one side only: the switches keep what is declared.
"""

from collections.abc import Iterator
from pathlib import Path

from infra.declaration import ClusterSpec, RegionSpec
from infra.ground.addresses import number_of
from infra.ground.problem import DeclarationError, Problem, show
from infra.ground.variable_files import variable_files
from infra.ground.yaml_source import Tree, read_yaml

MARKING = ("dscp", "priority", "cnp_dscp", "cnp_priority")


def check_overrides(spec: ClusterSpec, inventory: Path) -> list[Problem]:
    """Errors for variables in an inventory's folder that differ from what the switches are set to.

    Values that are templates, and files that are no plain YAML, are not judged.
    """
    switched = [
        region for region in spec.regions if region.fabric is not None and region.fabric.switch is not None
    ]
    return [
        problem
        for file, regions in _files(inventory, switched)
        for region in regions
        for problem in _differences(file, region)
    ]


def _files(inventory: Path, regions: list[RegionSpec]) -> Iterator[tuple[Path, list[RegionSpec]]]:
    """Every file of variables, with the regions it may be about."""
    for file in variable_files(inventory):
        about = _of_group if file.kind == "group_vars" else _of_host
        yield file.path, about(file.of, regions)


def _of_group(name: str, regions: list[RegionSpec]) -> list[RegionSpec]:
    """The one region of `region_tokyo` and `pool_tokyo_gpu`; all for groups that may hold any host."""
    if not name.startswith(("region_", "pool_")):
        return regions
    return [region for region in regions if name in _groups(region)]


def _groups(region: RegionSpec) -> set[str]:
    """The region's own groups, by their full names: `pool_tokyo_` begins also those of a region `tokyo-a`."""
    own = {f"region_{region.name}", *(f"pool_{region.name}_{pool.name}" for pool in region.pools)}
    return {name.replace("-", "_") for name in own}


def _of_host(name: str, regions: list[RegionSpec]) -> list[RegionSpec]:
    return [
        region
        for region in regions
        if any(
            number_of(region, pool, name) is not None or any(host.name == name for host in pool.hosts)
            for pool in region.pools
        )
    ]


def _differences(file: Path, region: RegionSpec) -> Iterator[Problem]:
    tree = _read(file)
    fabric = region.fabric
    if fabric is None or fabric.switch is None or not isinstance(tree.value, dict):
        return
    wanted = {f"roce_{name}": getattr(fabric.roce, name) for name in MARKING}
    for name, value in tree.value.items():
        if name in wanted and type(value) is int and value != wanted[name]:
            message = f"{value}, but the switches of region {region.name} have {wanted[name]}"
            yield _problem(file, tree, name, message, value, wanted[name])
        elif name == "roce_mtu_bytes" and type(value) is int and value > fabric.switch.mtu_bytes:
            most = fabric.switch.mtu_bytes
            message = f"{value} is larger than the {most} of region {region.name}'s switches"
            yield _problem(file, tree, name, message, value, most)


def _problem(file: Path, tree: Tree, name: str, message: str, found: int, right: int) -> Problem:
    hint = "declare it in the region's fabric, for hosts and switches alike"
    return Problem(
        name, message, show(found), str(right), None, hint,
        rule="fabric-override", file=str(file), line=tree.lines.get(name),
    )  # fmt: skip


def _read(file: Path) -> Tree:
    try:
        return read_yaml(file.read_text(encoding="utf-8"), str(file))
    except (DeclarationError, OSError, UnicodeDecodeError):
        return Tree()
