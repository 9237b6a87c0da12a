"""Packages of roles that leave a node: away with what came along for no one else, and their data kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.causeway_node import Steps
from ansible.module_utils.causeway_prior import Prior, packages, said

NO_DATA = ("/etc/", "/usr/", "/run/")
"""Whatever lies in a role's directory here is no data."""
WAITING = ".causeway-stays"
"""Data whose package goes waits under a name with this end, for packages take it with them."""
APT = ("-o", "DPkg::Lock::Timeout=300", "--yes", "--quiet")
ALLOWED = ("--allow-change-held-packages", "--allow-remove-essential")
"""What calls itself essential, such as e2fsprogs, is not where a node did without it before."""
ONLY_DEPENDS = (
    *("-o", "APT::AutoRemove::RecommendsImportant=false"),
    *("-o", "APT::AutoRemove::SuggestsImportant=false"),
)
"""That somebody may like a package is no reason for it to stay: nobody had it before."""


class Packages:
    """Those of the record, with what was before them.

    `things`: entry and look; `wanted`: names that other roles govern; `folders`: directories of the roles.
    """

    def __init__(
        self,
        steps: Steps,
        things: Iterable[tuple[dict[str, Any], Prior]],
        *,
        wanted: set[str],
        folders: set[str],
        purge: bool,
    ) -> None:
        self.steps, self.things = steps, list(things)
        self.wanted, self.folders, self.purge = wanted, folders, purge

    def uninstall(self) -> list[str]:
        """Packages that only these roles brought, and what came with them for no one else.

        Returns their directories that have data, and that no other package has.
        """
        self.bring_back_data()
        now, brought = packages(), []
        for thing, prior in self.things:
            name = thing["key"].partition(":")[0]
            was = prior.facts["packages"].get(name)
            if was is None and name in now and name not in self.wanted:
                brought.append((name, prior))
            elif was is not None and name in now:
                self.hold(name, was, now[name])
        before = set().union(*(prior.facts["packages"] for _name, prior in brought))
        names = self.free([name for name, _prior in brought], now, before)
        if not names:
            return []
        names += self.came_along(names, now, before)
        data = list(self.data_of(names, brought[0][1]))
        for folder in () if self.purge else data:
            self.put_away(folder)
        held = [name for name in names if now.get(name, {}).get("held")]
        if held:
            self.steps.run(f"no longer held: {', '.join(held)}", "apt-mark", "unhold", *held)
        shown = ", ".join(names)
        self.steps.run(f"removed the packages {shown}", "apt-get", "purge", *APT, *ALLOWED, *names)
        self.bring_back_data()
        return [folder for folder in data if not is_below(folder, data) and owners(folder) <= {*names}]

    def hold(self, name: str, was: dict[str, Any], now: dict[str, Any]) -> None:
        """Whether a package that was there is held; another version stays."""
        if was["held"] != now["held"]:
            word = "hold" if was["held"] else "unhold"
            self.steps.run(f"{word} {name}", "apt-mark", word, name)
        if was["version"] != now["version"]:
            self.steps.leave(f"package {name}", f"is {now['version']}, was {was['version']}")

    def free(self, names: list[str], now: dict[str, dict[str, Any]], before: set[str]) -> list[str]:
        """Those of the packages that nothing needs but what goes, too; the others are named."""
        if not names or not others_in(taken_by(names), names, now, before):
            return names
        free = []
        for name in names:
            if others := others_in(taken_by([name]), names, now, before):
                self.steps.leave(f"package {name}", f"is needed by {', '.join(others)}")
            else:
                free.append(name)
        return free

    def came_along(self, names: list[str], now: dict[str, dict[str, Any]], before: set[str]) -> list[str]:
        """Of what came for others and nobody needs without these packages, what was not there before them.

        Of what is essential apt never says so.
        """
        known = {*before, *self.wanted, *names}
        lasting = [name for name in essential() if now.get(name, {}).get("auto") and name not in known]
        lasting = [name for name in lasting if not others_in(taken_by([*names, name]), names, now, before)]
        gone = [*lasting, *taken_by([*names, *lasting], "--autoremove", *ONLY_DEPENDS)]
        auto = (name for name in gone if now.get(name, {}).get("auto"))
        return [name for name in dict.fromkeys(auto) if name not in known]

    def data_of(self, names: list[str], prior: Prior) -> Iterator[str]:
        """Directories of these packages and of these roles that have data in them."""
        own = set(said("dpkg-query", "--listfiles", *names).splitlines())
        own |= self.folders
        for folder in sorted(own):
            if not folder.startswith(NO_DATA) and is_filled(folder) and prior.path(folder) is None:
                yield folder

    def put_away(self, folder: str) -> None:
        """Rename data to where its package does not look for it."""
        if os.path.isdir(folder) and not self.steps.module.check_mode:  # not below one that was put away
            with suppress(OSError):  # a mount point, which no package deletes
                os.rename(folder, folder + WAITING)

    def bring_back_data(self) -> None:
        """Rename it back; also what a killed run has put away."""
        for top in ("/var/lib", "/var/log", "/srv", "/opt", "/var"):
            for path in sorted(Path(top).glob(f"*{WAITING}")) + sorted(Path(top).glob(f"*/*{WAITING}")):
                folder = str(path)[: -len(WAITING)]
                with suppress(OSError):
                    if os.path.isdir(folder) and not os.listdir(folder):
                        os.rmdir(folder)
                    os.rename(path, folder)


def taken_by(names: list[str], *options: str) -> list[str]:
    """The packages that apt would take away with these."""
    text = said("apt-get", "--simulate", "--quiet", *options, "purge", *names)
    words = (line.split() for line in text.splitlines() if line.startswith(("Purg ", "Remv ")))
    return [word[1].partition(":")[0] for word in words]


def essential() -> list[str]:
    """The packages that call themselves essential, in either word of Debian's."""
    shown = "${Package} ${Essential} ${Protected} ${Important}\\n"
    lines = said("dpkg-query", "--show", f"--showformat={shown}").splitlines()
    return [line.split()[0] for line in lines if "yes" in line.split()[1:]]


def owners(folder: str) -> set[str]:
    """The packages that have a directory: `a, b:amd64: /var/lib/c`."""
    named = (line.rpartition(": ")[0] for line in said("dpkg-query", "--search", folder).splitlines())
    return {name.strip().partition(":")[0] for names in named for name in names.split(",")}


def others_in(
    taken: list[str], names: list[str], now: dict[str, dict[str, Any]], before: set[str]
) -> list[str]:
    """Of what would go, what was there before, or somebody has asked for since.

    What came for others since then has those among them, or goes.
    """
    others = (name for name in taken if name in now and name not in names)
    return [name for name in others if name in before or not now[name]["auto"]]


def is_below(folder: str, others: list[str]) -> bool:
    """Whether it lies in one of the others."""
    return any(folder.startswith(f"{other}/") for other in others)


def is_filled(folder: str) -> bool:
    """Whether something lies in a directory, or below its directories."""
    if not os.path.isdir(folder) or os.path.islink(folder):
        return False
    return any(names for _top, _folders, names in os.walk(folder))
