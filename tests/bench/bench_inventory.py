"""How long Ansible takes to list 10,000 hosts: from the contract, and from the same data as script JSON.

Prints seconds and MiB of both, the best of three runs, and their ratio; judges nothing.
Usage: python tests/bench/bench_inventory.py [HOSTS]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from infra.declaration import ClusterSpec
from infra.ground.contract import Contract
from infra.inventory.groups import inventory_data
from infra.planning.contract import build_contract
from infra.planning.plan import make_plan

ROOT = Path(__file__).resolve().parents[2]
RUNS = 3
REGIONS = 4


def big_contract(hosts: int) -> Contract:
    """A cluster of four regions in a row, each with a tenth of its hosts in the control pool."""
    per_region = hosts // REGIONS
    control = per_region // 10
    gpu = {"gpus": 8, "gpu_model": "h100-sxm", "nics": 8, "nic_gbps": 400}
    regions = [
        {
            "name": f"region-{number}",
            "cidr": f"10.{80 + number}.0.0/16",
            "pools": [
                {"name": "control", "role": "control", "count": control},
                {"name": "gpu", "role": "gpu", "count": per_region - control, **gpu},
            ],
        }
        for number in range(REGIONS)
    ]
    links = [
        {"name": f"link-{n}", "a": f"region-{n}", "b": f"region-{n + 1}", "rtt_ms": 70, "bandwidth_mbps": 100}
        for n in range(REGIONS - 1)
    ]
    spec = ClusterSpec.model_validate({"name": "bench", "regions": regions, "wan_links": links})
    return build_contract(spec, make_plan(spec), "bench")


def sources(folder: Path, contract: Contract) -> dict[str, Path]:
    """The same hosts twice: as the plugin's source, and as a script that prints them."""
    (folder / "contract.json").write_text(contract.model_dump_json())
    (folder / "data.json").write_text(json.dumps(inventory_data(contract, ROOT)))
    plugin, script = folder / "causeway.yml", folder / "script"
    plugin.write_text(f"plugin: causeway\ncontract: {folder / 'contract.json'}\n")
    script.write_text(f"#!/bin/sh\nexec cat {folder / 'data.json'}\n")
    script.chmod(0o700)
    return {"plugin": plugin, "script JSON": script}


def measure(source: Path, output: Path) -> tuple[float, float]:
    """Seconds and MiB that `ansible-inventory --list` takes."""
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    command = ["ansible-inventory", "-i", str(source), "--list", "--output", str(output)]
    started = time.monotonic()
    process = subprocess.Popen(command, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return time.monotonic() - started, usage.ru_maxrss / 1024


def literal(value: dict[str, Any]) -> Any:
    """A text as it is: the plugin's are marked as no templates, which a script cannot say of its own."""
    return value.get("__ansible_unsafe", value)


def main(hosts: int) -> None:
    """Measure both in turn, so that a busy machine is unfair to neither."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = sources(folder, big_contract(hosts))
        output = {kind: folder / f"{kind}.out" for kind in found}
        runs = [{kind: measure(source, output[kind]) for kind, source in found.items()} for _ in range(RUNS)]
        plugin, script = (json.loads(file.read_text(), object_hook=literal) for file in output.values())
    best = {kind: min(run[kind] for run in runs) for kind in found}
    print(f"ansible-inventory --list, {hosts} hosts, best of {RUNS}:")
    for kind, (seconds, mib) in best.items():
        print(f"  {kind:<12} {seconds:6.2f} s  {mib:6.0f} MiB")
    print(
        f"  ratio        {best['plugin'][0] / best['script JSON'][0]:6.2f}  same output: {plugin == script}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
