#!/usr/bin/python3
"""Ansible module: the packages of a GPU stack, at declared versions, held; or all as it was before."""

from __future__ import annotations

import re
from pathlib import Path

from ansible.module_utils import causeway_cuda as cuda
from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_cuda_base
short_description: Install the packages of a GPU stack at declared versions, and hold them
description:
  - Changes packages only where the declared versions are others than the installed ones. Where they cannot be
    installed, or do not work once they are, brings back what was installed before, held as before, and fails.
options:
  packages:
    description: Name → declared version, without epoch and revision; empty for any.
    type: dict
    required: true
  driver:
    description: The driver's version.
    type: str
    required: true
  patterns:
    description: Names of packages that have the driver's version, as patterns of a shell.
    type: list
    elements: str
    required: true
"""
EXAMPLES = r"""
- name: Install the driver's libraries
  causeway_cuda_base:
    packages: {nvidia-smi: 550.163.01}
    driver: 550.163.01
    patterns: ["*nvidia*"]
"""
RETURN = r"""
versions:
  description: Name → exact version of what is held.
  type: dict
  returned: always
gpus:
  description: How many GPUs of NVIDIA's the PCI bus has.
  type: int
  returned: always
reboot:
  description: Why the node has to be rebooted before the driver is in force; empty where it has not.
  type: str
  returned: always
governs:
  description: The packages and the file that this call made true.
  type: list
  returned: always
"""
PREFERENCES = Path("/etc/apt/preferences.d/causeway-cuda-base")
ARCHIVES = Path("/var/cache/causeway/cuda_base")
"""Archives of what is installed, for the way back: a source may have the newest version alone."""
LOADED = Path("/sys/module/nvidia/version")
APT = (
    *("apt-get", "--yes", "--quiet", "--no-install-recommends", "--allow-downgrades"),
    *(
        "--allow-change-held-packages",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "Dpkg::Options::=--force-confold",
    ),
)


class BrokenError(Exception):
    """A step that failed, with what it said."""


class Node:
    """What this node has, and changes of it."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    def run(self, *argv: str) -> str:
        """What a program prints; BrokenError with its last words."""
        plain = {"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        status, printed, complaint = self.module.run_command(list(argv), environ_update=plain)
        if status:
            lines = (complaint or printed).strip().splitlines()
            errors = [line for line in lines if line.startswith("E: ")] or lines[-1:] or ["no word"]
            raise BrokenError(f"{' '.join(argv[:1])} ended with {status}: {'; '.join(errors)}")
        return printed

    def installed(self) -> dict[str, str]:
        """Every installed package → its version."""
        shown = self.run(
            "dpkg-query", "--show", "--showformat", "${Package}\t${Version}\t${db:Status-Status}\n"
        )
        rows = (line.split("\t") for line in shown.splitlines())
        return {name: version for name, version, status in rows if status == "installed"}

    def held(self) -> set[str]:
        """The packages that are held."""
        return {name.partition(":")[0] for name in self.run("apt-mark", "showhold").split()}

    def offered(self, names: list[str]) -> dict[str, list[str]]:
        """Name → the versions that sources have, the newest first; not what only dpkg knows."""
        found: dict[str, list[str]] = {}
        for line in self.run("apt-cache", "madison", *names).splitlines():
            name, version, _ = (part.strip() for part in line.split("|", 2))
            if version not in found.setdefault(name, []):
                found[name].append(version)
        return found

    def install(self, versions: dict[str, str], gone: list[str]) -> None:
        """Install exact versions, from the kept archives where they are, and remove packages."""
        words = [self.archive(name, version) or f"{name}={version}" for name, version in versions.items()]
        words += [f"{name}-" for name in gone]
        keep = ("-o", f"Dir::Cache::Archives={ARCHIVES}", "-o", "APT::Keep-Downloaded-Packages=true")
        (ARCHIVES / "partial").mkdir(mode=0o755, parents=True, exist_ok=True)
        command = (*APT, *keep, "install", *sorted(words))
        try:
            self.run(*command)
        except BrokenError as error:
            # What comes along for others the archive may have dropped for something newer.
            if "maybe run apt-get update" not in str(error):
                raise
            self.update()
            self.run(*command)

    def update(self) -> None:
        """Fetch the lists of the sources."""
        self.run("apt-get", "--quiet", "-o", "DPkg::Lock::Timeout=300", "update")

    def archive(self, name: str, version: str) -> str | None:
        """The kept archive of a version."""
        found = ARCHIVES.glob(f"{name}_{version.replace(':', '%3a')}_*.deb")
        return next(map(str, found), None)

    def forget_all_but(self, versions: dict[str, str]) -> None:
        """Remove archives of what is no longer installed."""
        kept = {self.archive(name, version) for name, version in versions.items()}
        for path in ARCHIVES.glob("*.deb"):
            if str(path) not in kept:
                path.unlink()

    def mark(self, word: str, names: list[str]) -> None:
        """Hold packages, or let them go."""
        if names:
            self.run("apt-mark", word, *sorted(names))


def text_of(path: Path) -> str:
    """What a file says; nothing where there is none."""
    try:
        return path.read_text()
    except OSError:
        return ""


def prefer(text: str) -> None:
    """Write apt's preferences whole, or remove them where nothing is to be said."""
    if not text:
        PREFERENCES.unlink(missing_ok=True)
        return
    new = PREFERENCES.with_suffix(".new")  # apt does not read it
    new.write_text(text)
    new.chmod(0o644)
    new.replace(PREFERENCES)


def gpus() -> int:
    """GPUs of NVIDIA's on the PCI bus: display controllers, 3D ones among them (PCI class 03)."""
    devices = Path("/sys/bus/pci/devices").glob("*")
    ours = [device for device in devices if text_of(device / "vendor").strip() == "0x10de"]
    return sum(text_of(device / "class").startswith("0x03") for device in ours)


def has_kernel(packages: dict[str, str]) -> bool:
    """Whether kernel modules are among the packages."""
    return any(name.endswith("-dkms") for name in packages)


def complaints(node: Node, targets: dict[str, str], driver: str) -> list[str]:
    """What does not work of what was installed."""
    installed = node.installed()
    found = [
        f"{name} is {installed.get(name, 'not there')} and not {version}"
        for name, version in targets.items()
        if installed.get(name) != version
    ]
    try:
        found += _of_the_program(node, driver)
        if has_kernel(targets):
            built = node.run("modinfo", "--field", "version", "nvidia").strip()
            if built != driver:
                found.append(f"the kernel's module is of {built}")
    except BrokenError as error:
        found.append(str(error))
    return found


def _of_the_program(node: Node, driver: str) -> list[str]:
    """What nvidia-smi says; of GPUs only where its own module is loaded: of another it cannot ask."""
    said = node.run("nvidia-smi", "--help").splitlines()
    version = re.search(r"v([0-9.]+)", said[0] if said else "")
    if not version or version[1] != driver:
        return [f"nvidia-smi is of {version[1] if version else 'no version'}"]
    if text_of(LOADED).strip() != driver:
        return []
    rows = node.run("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()
    return [f"a GPU has driver {row.strip()}" for row in rows if row.strip() != driver]


def why_reboot(driver: str, targets: dict[str, str]) -> str:
    """Why the node has to be rebooted; empty where it has not."""
    loaded = text_of(LOADED).strip()
    if not has_kernel(targets):
        return ""
    if loaded and loaded != driver:
        return f"the kernel has driver {loaded} loaded, and {driver} is installed"
    return "nouveau is loaded" if Path("/sys/module/nouveau").is_dir() else ""


def change(node: Node, wanted: cuda.Wanted, targets: dict[str, str]) -> dict[str, str]:
    """Install and hold; the versions that are held then. BrokenError once all is as it was before."""
    before, holds, said = node.installed(), node.held(), text_of(PREFERENCES)
    try:
        node.run("dpkg", "--configure", "-a")
        prefer(wanted.preferences(targets))
        node.mark("unhold", [name for name in targets if name in holds])
        todo = {name: version for name, version in targets.items() if before.get(name) != version}
        if todo:
            node.install(todo, [])
        targets = {**targets, **_come_with(node, wanted)}
        if found := complaints(node, targets, wanted.driver):
            raise BrokenError("; ".join(found))
        prefer(wanted.preferences(targets))
        node.mark("hold", list(targets))
    except BrokenError as error:
        raise BrokenError(f"{error}. {undo(node, before, holds, said)}") from error
    node.forget_all_but(targets)
    return targets


def _come_with(node: Node, wanted: cuda.Wanted) -> dict[str, str]:
    """What came as dependencies and is the driver's."""
    installed = node.installed()
    return {name: installed[name] for name in wanted.bound(installed)}


def undo(node: Node, before: dict[str, str], holds: set[str], said: str) -> str:
    """Bring back what was installed and held; what became of it, in words."""
    prefer(said)
    back, gone = cuda.way_back(before, node.installed())
    try:
        if back or gone:
            node.mark("unhold", [name for name in (*back, *gone) if name in node.held()])
            node.install(back, gone)
        node.mark("hold", [name for name in holds if name in before])
    except BrokenError as error:
        return f"What was there before could not be brought back: {error}"
    if node.installed() != before:
        return "What was there before could not be brought back whole: see `dpkg --audit`"
    kept = ", ".join(f"{name} {version}" for name, version in sorted(back.items()))
    return f"Rolled back to {kept}, held as before" if back else "Nothing of it stays installed"


def main() -> None:
    """Entry point of the module."""
    arguments = {
        "packages": {"type": "dict", "required": True},
        "driver": {"type": "str", "required": True},
        "patterns": {"type": "list", "elements": "str", "required": True},
    }
    module = AnsibleModule(argument_spec=arguments, supports_check_mode=True)
    packages = {name: str(version or "") for name, version in module.params["packages"].items()}
    wanted, node = cuda.Wanted(packages, module.params["driver"], module.params["patterns"]), Node(module)
    try:
        targets, missing = _targets(node, wanted)
        if missing and module.check_mode:
            module.exit_json(changed=True, versions=targets, gpus=gpus(), reboot="", governs=[])
        if missing:
            module.fail_json(msg=f"no source has {'; '.join(missing)}. Nothing was changed")
        unheld = set(targets) - node.held()
        installed = node.installed()
        differ = [name for name, version in targets.items() if installed.get(name) != version]
        changed = bool(differ or unheld or text_of(PREFERENCES) != wanted.preferences(targets))
        if changed and not module.check_mode:
            targets = change(node, wanted, targets)
    except BrokenError as error:
        module.fail_json(msg=f"driver {wanted.driver}: {error}")
    held = {"installed": True, "hold": True}
    governs = [
        {"kind": "package", "key": name, "want": held, "how": {"pinned": True}} for name in sorted(targets)
    ]
    archives = [{"kind": "directory", "key": str(ARCHIVES)}] if ARCHIVES.is_dir() else []
    module.exit_json(
        changed=changed,
        versions=targets,
        gpus=gpus(),
        reboot=why_reboot(wanted.driver, targets),
        governs=[*governs, {"kind": "file", "key": str(PREFERENCES)}, *archives],
    )


def _targets(node: Node, wanted: cuda.Wanted) -> tuple[dict[str, str], list[str]]:
    """As `Wanted.targets`, after another look at the sources where something is missing.

    At all of them: a list that is fetched alone takes along the release file of its neighbours, whose older
    lists apt then holds for those of that release.
    """
    installed = node.installed()
    names = sorted({*wanted.packages, *wanted.bound(installed)})
    targets, missing = wanted.targets(installed, node.offered(names))
    if missing and not node.module.check_mode:
        node.update()
        targets, missing = wanted.targets(installed, node.offered(names))
    return targets, missing


if __name__ == "__main__":
    main()
