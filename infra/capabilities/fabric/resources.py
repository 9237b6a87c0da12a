"""The configurations of a region's switches as files, for whoever brings them onto the switches."""

from pathlib import Path
from typing import Any

import pulumi
from pydantic import ValidationError

from infra import ROOT
from infra.capabilities.fabric.capability import CAPABILITY as FABRIC
from infra.capabilities.fabric.sonic import switch_files
from infra.capabilities.fabric.topology import has_switches, plan_fabric
from infra.declaration import ClusterSpec, RegionSpec
from infra.files import tree_hash, write_file
from infra.ground.clos import fabric_pools
from infra.planning.plan import Plan
from infra.providers.lifecycle import Lifecycle, Managed, Properties
from infra.stack import stack_dir


class SwitchFilesLifecycle(Lifecycle):
    """`.causeway/stacks/<stack>/switches/<switch>/config_db.json` for every switch of a region."""

    outputs = ("switches",)
    replace_on = ("stack", "region")

    def identity(self, inputs: Properties) -> str:
        """One per region."""
        return f"switches/{inputs['stack']}/{inputs['region']}"

    def ensure(self, inputs: Properties, known: Properties) -> dict[str, Any]:
        """Write the files, and delete those of switches that are no more."""
        files = _files(inputs)
        for path, text in files.items():
            write_file(path, text)
        switches = [path.parent.name for path in files]
        _delete(inputs, set(known.get("switches") or ()) - set(switches))
        return {"switches": switches}

    def observe(self, properties: Properties) -> list[str]:
        """Files that are missing or say something else."""
        try:
            files = _files(properties)
        except ValidationError:
            return ["the switches were planned by another version of Causeway"]
        return [
            f"{path.relative_to(ROOT)} is not what `up` wrote"
            for path, text in files.items()
            if not path.exists() or path.read_text() != text
        ]

    def remove(self, properties: Properties) -> None:
        """Delete the files."""
        _delete(properties, set(properties.get("switches") or ()))


class SwitchFiles(Managed, module="causeway", name="SwitchFiles"):
    """The switches of one region's fabric. `switches` are their names."""

    switches: pulumi.Output[list[str]]

    def __init__(self, stack: str, number: int, region: RegionSpec, opts: pulumi.ResourceOptions) -> None:
        inputs = switch_inputs(stack, number, region)
        super().__init__(SwitchFilesLifecycle, f"{region.name}-switches", inputs, opts)


def build(stack: str, spec: ClusterSpec, plan: Plan, opts: pulumi.ResourceOptions) -> None:
    """The switches' files of every region that has some to configure."""
    fabrics = plan.of(FABRIC) or {}
    for number, region in enumerate(spec.regions):
        if region.name in fabrics and has_switches(region):
            SwitchFiles(stack, number, region, opts)


def switch_inputs(stack: str, number: int, region: RegionSpec) -> dict[str, Any]:
    """What the files of region number `number` (from 0, as declared) depend on, the planner included."""
    pools = [pool.model_dump(mode="json", exclude={"hosts"}) for pool in fabric_pools(region)]
    return {
        "stack": stack,
        "region": region.name,
        "number": number,
        "declared": region.model_dump(mode="json", include={"name", "cidr", "fabric"}) | {"pools": pools},
        "planner": tree_hash("infra/capabilities/fabric"),
    }


def _folder(properties: Properties) -> Path:
    return ROOT / stack_dir(properties["stack"]) / "switches"


def _files(properties: Properties) -> dict[Path, str]:
    """Path → content, made anew from the declaration."""
    region = RegionSpec.model_validate(properties["declared"])
    plan = plan_fabric(int(properties["number"]), region)
    return {_folder(properties) / name: text for name, text in switch_files(plan)} if plan else {}


def _delete(properties: Properties, switches: set[str]) -> None:
    for name in switches:
        folder = _folder(properties) / name
        (folder / "config_db.json").unlink(missing_ok=True)
        if folder.exists() and not any(folder.iterdir()):
            folder.rmdir()
