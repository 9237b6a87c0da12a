"""Declarations in which every text that can be declared is, and texts that would like to be more."""

import copy
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

from ruamel.yaml import YAML

from infra.checks import check
from infra.checks.schema import parse_spec
from infra.declaration import ClusterSpec
from infra.ground.problem import DeclarationError

Path = tuple[str | int, ...]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHaSw601QLuAPAILOu5mzYiHEjI06gxucUPArdc/9DHt"
CONTAINERS = {
    "engine": "podman",
    "storage_path": "/srv/containers",
    "registries": [{"name": "docker.io", "mirrors": ["mirror.example.org:5000/hub"], "ca_file": "keys/ca"}],
}
MACHINES: dict[str, Any] = {
    "name": "pacific",
    "authorized_keys": [f"{KEY} ada@laptop"],
    "regions": [
        {
            "name": region,
            "provider": {
                "kind": "existing",
                "ssh_user": "ada",
                "ssh_key_file": "~/.ssh/id_ed25519",
                "sudo": "password",
                "sudo_password_secret": "sudo-ada",
                "gateway_address": f"{network}.250",
                "ssh_host_ca": f"{KEY} the authority",
                "adopt": {
                    "hostname": "keep", "hosts_file": "managed_block", "time_servers": "keep",
                    "timezone": "keep", "locale": "keep", "passwords": "keep", "unattended_upgrades": "keep",
                    "resolver": "keep",
                },
                "take_over": ["consul", "node_exporter"],
                "ssh_jump": [{"address": "bastion.example.org", "ssh_user": "ada", "host_key": f"{KEY} its"}],
            },
            "timezone": "Asia/Tokyo",
            "locale": "ja_JP.UTF-8",
            "mirrors": {
                "packages": "https://mirror.example.org/debian",
                "security": "https://mirror.example.org/security",
                "components": ["main", "contrib"],
                "artefacts": "https://mirror.example.org/programs",
                "proxy": "http://192.0.2.20:3128",
                "ca_file": "keys/mirrors.pem",
            },
            "cidr": f"{network}.0/24",
            "pools": [
                {
                    "name": name,
                    "role": role,
                    "count": 2,
                    "hosts": [
                        {"address": f"{network}.{first + number}", "host_key": f"{KEY} root@it"}
                        | ({"name": f"{region}-rack7-{first}"} if number and role == "gpu" else {})
                        for number in (0, 1)
                    ],
                }
                | ({"gpus": 8, "gpu_model": "h100-sxm"} if role == "gpu" else {})
                | ({"scratch": {"path": "/scratch"}} if role == "gpu" else {})
                | ({"container_runtime": CONTAINERS, "roles": {"exclude": ["roce"]}} if role == "gpu" else {})
                for name, role, first in (
                    ("control", "control", 10), ("edge", "gateway", 20), ("gpu", "gpu", 30),
                    ("storage", "storage", 40),
                )
            ],
        }
        for region, network in (("tokyo", "10.1.0"), ("osaka", "10.2.0"))
    ],
    "wan_links": [
        {
            "name": name, "a": "tokyo", "b": "osaka", "kind": kind, "rtt_ms": 9, "bandwidth_mbps": 1000,
            "single_flow_mbps": 10,
            "a_end": {"address": f"192.0.2.{first}/30", "gateway": f"tokyo-edge-{n}", **more},
            "b_end": {"address": f"192.0.2.{first + 1}/30", "gateway": f"osaka-edge-{n}"},
        }
        | ({"backup_of": "inland"} if n else {})
        for n, (name, kind, first, more) in enumerate(
            (("inland", "dedicated_fiber", 1, {}), ("internet", "vpn", 5, {"public_address": "198.51.100.1"}))
        )
    ],
    "waves": [["tokyo"], ["osaka"]],
    "leave": [{"role": "consul", "hosts": ["tokyo-control-0"]}],
}  # fmt: skip
for file in sorted((File(__file__).parents[1] / "texts").glob("*.yml")):
    MACHINES |= YAML(typ="safe", pure=True).load(file.read_text())  # what a capability has declared
FABRIC: dict[str, Any] = {
    "name": "lab",
    "regions": [
        {
            "name": "tokyo",
            "provider": {"kind": "local", "node_kind": "vm"},
            "cidr": "10.81.0.0/16",
            "fabric": {
                "kind": "rail_optimized", "radix": 64, "rails": 2, "link_gbps": 400, "cidr": "172.30.0.0/16",
                "nccl": {"algo": "ring,tree", "net_gdr_level": "PXB", "topo_file": "/etc/nccl-topology.xml"},
                "switch": {"kind": "sonic", "asic": "spectrum-4", "hwsku": "ACS-SN5600"},
            },
            "pools": [
                {"name": "control", "role": "control", "count": 1, "node_kind": "container"},
                {
                    "name": "gpu", "role": "gpu", "count": 2, "gpus": 2, "gpu_model": "h100-sxm",
                    "gpu_stack": {
                        "driver": "590.48.01", "cuda": "13.1", "kernel_modules": "open",
                        "mig": {"profile": "1g.10gb", "count": 7}, "dcgm": "4.6", "dcgm_exporter": "4.6.0",
                        "host": {
                            "governor": "performance", "iommu": "passthrough", "acs": "off",
                            "dpu_mode": "nic",
                        },
                        "container_toolkit": "1.18.0",
                        "source": {
                            "kind": "nvidia", "key_file": "cuda.asc",
                            "mirror": "https://mirror.example.org/cuda",
                        },
                    },
                    "nics": 2, "nic_gbps": 400, "nic_names": ["eth1", "eth2"],
                },
                {"name": "disks", "role": "storage", "count": 1, "node_kind": "container"},
                {"name": "files", "role": "storage", "count": 1, "node_kind": "container"},
            ],
        }
    ],
    "monitoring": {"kind": "prometheus", "bmc": "required", "logs": {"kind": "victorialogs"}},
    "storage": [
        {
            "name": "trial", "region": "tokyo", "kind": "ceph", "pools": ["disks"],
            "version": "18.2.7",
            "osd_backing": {"kind": "file", "size_gib": 4, "device_classes": ["hdd"]},
        },
        {
            "name": "home", "region": "tokyo", "kind": "nfs", "pools": ["files"], "backing": {"kind": "file"},
            "exports": [{"kind": "nfs", "name": "users", "quota_gib": 1}],
        },
    ],
}  # fmt: skip
DECLARATIONS = {"machines": MACHINES, "fabric": FABRIC}

RUN = "lookup('pipe', 'touch made')"
TEMPLATES = ("{{ %s }}" % RUN, "{%% if %s %%}{%% endif %%}" % RUN, "{# none #}", RUN, "{{ 1 + 1 }}")  # noqa: UP031
ENDINGS = ("\n", "\r", "\0", "\v", "\f", "\x1b[2J", "\x85", "\u2028", "\u202e", "\ud800")
QUOTES = ('"', "'", "\\", "`", "$(touch made)", "%h", "; touch made", "#", "[bold]", " ")
OPTION = "-oProxyCommand=touch made"
ODD = (*TEMPLATES, *(f"{text}x" for text in ENDINGS), *QUOTES, OPTION)


def texts(value: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text in a declaration with its place: the values, and keys that are names."""
    if isinstance(value, str):
        yield path, value
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        if path[-1:] == ("datacenters",):
            yield (*path, key), str(key)
        yield from texts(value[key], (*path, key))


def variants(text: str, odd: str) -> tuple[str, ...]:
    """The ways in which something odd gets into a text."""
    return odd, f"{text}{odd}", f"{text} {odd}", f"{odd}{text}"


def with_text(tree: Any, path: Path, text: Any) -> Any:
    """The declaration with another text in one place; it shares all the rest, which nobody changes."""
    if not path:
        return text
    changed = copy.copy(tree)
    changed[path[0]] = with_text(tree[path[0]], path[1:], text)
    return changed


def renamed(value: Any, old: str, new: str) -> Any:
    """The declaration with another text wherever it stands, so that what refers to a name finds it still."""
    if isinstance(value, dict):
        return {renamed(key, old, new): renamed(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, old, new) for item in value]
    if isinstance(value, str) and (value == old or value.startswith(f"{old}-")):
        return new + value[len(old) :]
    return value


def accepted(tree: Any) -> ClusterSpec | None:
    """What a declaration declares; None where `causeway check` refuses it."""
    try:
        spec = parse_spec(tree)
    except DeclarationError:
        return None
    return None if any(problem.severity == "error" for problem in check(spec)) else spec
