"""The number of resources a plan promises is the number Pulumi registers."""

import asyncio
from typing import Any

import pulumi
import pytest
from pulumi.runtime import mocks

from infra.checks import parse_spec
from infra.components import Cluster, Inventory, Region, Rollout, WanLink
from infra.declaration import ClusterSpec
from infra.planning.plan import make_plan
from tests.unit.fabrics import TINY

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG1pbmltYWwta2V5LWZvci10aGUtdGVzdC1vbmx5LTEy"


class Recorder(mocks.Mocks):
    """Answers for every resource, and remembers that it was asked."""

    def __init__(self) -> None:
        self.types: list[str] = []

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.types.append(args.typ)
        named = args.inputs.get("nodes") or args.inputs.get("hosts")
        names = named if isinstance(named, dict) else {}
        instances = {name: {"id": name, "host_key": KEY} for name in names}
        return f"{args.name}-id", {**args.inputs, "instances": instances}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[Any, Any], None]:
        raise AssertionError(f"{args.token}: a component calls no function of a provider")


@pytest.fixture
def recorder() -> Recorder:
    recorder = Recorder()
    asyncio.set_event_loop(asyncio.new_event_loop())
    mocks.set_mocks(recorder, project="causeway", stack="count")
    return recorder


def mixed_spec() -> ClusterSpec:
    """Two local regions and one of existing machines: every kind of resource there is."""
    pool = {"name": "control", "role": "control", "count": 1}
    host = {"address": "10.93.0.5", "host_key": KEY}
    return parse_spec(
        {
            "name": "count",
            "regions": [
                {"name": "one", "cidr": "10.91.0.0/16", "pools": [pool, {**pool, "name": "more"}]},
                {"name": "two", "cidr": "10.92.0.0/16", "pools": [pool], "fabric": TINY},
                {
                    "name": "old",
                    "provider": {"kind": "existing"},
                    "cidr": "10.93.0.0/16",
                    "pools": [{**pool, "hosts": [host]}],
                },
            ],
            "wan_links": [
                {"name": "near", "a": "one", "b": "two", "rtt_ms": 5, "bandwidth_mbps": 100},
                {"name": "far", "a": "two", "b": "old", "rtt_ms": 50, "bandwidth_mbps": 100},
            ],
        }
    )


def build(spec: ClusterSpec) -> None:
    cluster = Cluster(spec)
    regions = {region.name: Region(region.name, region, cluster) for region in spec.regions}
    links = [WanLink(link.name, link, regions[link.a], regions[link.b], cluster) for link in spec.wan_links]
    Rollout(Inventory(cluster, list(regions.values()), links))


@pytest.mark.parametrize("regions", [1, 3])
def test_plan_counts_what_pulumi_registers(recorder: Recorder, regions: int) -> None:
    spec = mixed_spec()
    if regions == 1:
        spec = spec.model_copy(update={"regions": spec.regions[:1], "wan_links": ()})

    pulumi.runtime.test(lambda: build(spec))()  # type: ignore[no-untyped-call] # Pulumi gives it no types
    counts = make_plan(spec).resources
    stack = 1  # Pulumi's own resource, which mocks do not see
    assert len(recorder.types) + stack == sum(counts.values()), recorder.types
