"""Packages of roles that leave a node: away with what came along for no one else, and their data kept."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils.causeway_node import Steps, keep_copy
from ansible.module_utils.causeway_prior import Prior, packages, said

NO_DATA = ("/etc/", "/usr/", "/run/")
"""Whatever lies in a role's directory here is no data."""
SETTINGS = "/etc/"
WAITING = ".causeway-stays"
"""Data whose package goes waits under a name with this end, for packages take it with them."""
TOPS = ("/var/lib", "/var/log", "/srv", "/opt", "/var")
DEPTHS = ("*", "*/*", "*/*/*")
"""How far below the directories for data it may wait, those above first."""
APT = ("-o", "DPkg::Lock::Timeout=300", "--yes", "--quiet")
ALLOWED = ("--allow-change-held-packages", "--allow-remove-essential")
"""What calls itself essential, such as e2fsprogs, is not where a node did without it before."""
ONLY_DEPENDS = (
    *("-o", "APT::AutoRemove::RecommendsImportant=false"),
    *("-o", "APT::AutoRemove::SuggestsImportant=false"),
)
"""That somebody may like a package is no reason for it to stay: nobody had it before."""
NO_MORE = "--no-install-recommends"
"""Nothing but what was there, and what that depends on."""

EVEN_LIKED = (
    *("-o", "APT::AutoRemove::RecommendsImportant=true"),
    *("-o", "APT::AutoRemove::SuggestsImportant=true"),
)
PACKAGE = re.compile(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]*)")
"""A package's name in a list of those that another one needs."""


class Packages:
    """Those of the record, with what was before them.

    `things`: entry and look; `wanted`: names that other roles govern; `folders`: directory of the roles → the
    look before; `files`: their paths. `going`: what an earlier call was about to take away, `back`: what it
    was about to bring back; `note` is told of what this one is.
    """

    def __init__(
        self,
        steps: Steps,
        things: Iterable[tuple[dict[str, Any], Prior]],
        *,
        wanted: set[str],
        folders: dict[str, Prior],
        files: set[str],
        purge: bool,
        going: Iterable[str],
        back: dict[str, dict[str, Any]],
        note: Callable[[list[str], dict[str, dict[str, Any]]], None],
    ) -> None:
        self.steps, self.things = steps, list(things)
        self.wanted, self.folders, self.files, self.purge = wanted, folders, files, purge
        self.going, self.back, self.note = going, dict(back), note

    def uninstall(self) -> dict[str, Prior]:
        """Packages that only these roles brought, and what came with them for no one else.

        Returns their directories that have data and that no other package has, with the look before each.
        """
        self.bring_back_data()
        now, brought = packages(), []
        for thing, prior in self.things:
            name = thing["key"].partition(":")[0]
            was = prior.facts["packages"].get(name)
            if was is None and name in now and name not in self.wanted:
                brought.append((name, prior))
            elif was is not None and name in now:
                self.as_it_was(name, was, now[name])
        before = set().union(*(prior.facts["packages"] for _name, prior in brought))
        free = self.free([name for name, _prior in brought], now, before)
        along = self.came_along(free, now, before) if free else []
        names = [*free, *along, *sorted(self.begun(now).difference(free, along))]
        data = self.take_away(names, now, [(name, prior) for name, prior in brought if name in free])
        self.bring_back()
        tops = (folder for folder in data if not is_below(folder, data))
        return {folder: data[folder] for folder in tops if owners(folder) <= {*names}}

    def take_away(
        self, names: list[str], now: dict[str, dict[str, Any]], brought: list[tuple[str, Prior]]
    ) -> dict[str, Prior]:
        """Packages, with what a purge takes of them put aside; their directories that have data."""
        if not names:
            return {}
        data, others = self.data_of(names, brought)
        self.back.update(self.driven_out(names, now, [prior for _name, prior in brought]))
        self.note(names, self.back)
        for folder in others if self.purge else sorted([*data, *others]):
            self.put_away(folder)
        held = [name for name in names if now.get(name, {}).get("held")]
        if held:
            self.steps.run(f"no longer held: {', '.join(held)}", "apt-mark", "unhold", *held)
        kept = self.keep_settings(names)
        if kept is None:
            self.bring_back_data()
            return {}
        # Of one that was removed before, and not purged, the settings were there: they are somebody's.
        shells = [name for name in names for _, prior in brought if name in prior.facts.get("removed", ())]
        shells = list(dict.fromkeys(shells))
        if shells:
            said_so = f"removed {', '.join(shells)}, whose settings were there before"
            self.steps.run(said_so, "apt-get", "remove", *APT, *ALLOWED, *shells)
        if whole := [name for name in names if name not in shells]:
            shown = ", ".join(whole)
            self.steps.run(f"removed the packages {shown}", "apt-get", "purge", *APT, *ALLOWED, *whole)
        self.name_settings(kept)
        self.bring_back_data()
        return data

    def driven_out(
        self, names: list[str], now: dict[str, dict[str, Any]], priors: list[Prior]
    ) -> dict[str, dict[str, Any]]:
        """Packages that were there and cannot be beside one that goes, as chrony and systemd-timesyncd.

        Installing those has removed these; whatever else is missing somebody has taken away since.
        """
        was = {name: package for prior in priors for name, package in prior.facts["packages"].items()}
        missing = sorted(was.keys() - now.keys())
        return {
            name: was[name]
            for name in missing
            if not {*names}.isdisjoint(taken_by([name], NO_MORE, verb="install"))
        }

    def bring_back(self) -> None:
        """Install again what those have driven out, also where an earlier call was killed before it did."""
        missing = sorted(self.back.keys() - packages().keys())
        if missing:
            if not self.steps.module.check_mode:
                self.steps.command("apt-get", "update", "--quiet")  # where it fails, what is known may do
            shown = ", ".join(missing)
            self.steps.run(f"installed again: {shown}", "apt-get", "install", NO_MORE, *APT, *missing)
        now = packages()
        for name in missing:
            if name in now:
                self.as_it_was(name, self.back[name], now[name])

    def begun(self, now: dict[str, dict[str, Any]]) -> set[str]:
        """What a run that was killed while apt worked has left: as needless as what was so before."""
        going = {name for name in self.going if name in now and name not in self.wanted}
        return going and going & {*taken_by([], *ONLY_DEPENDS, verb="autoremove")}

    def as_it_was(self, name: str, was: dict[str, Any], now: dict[str, Any]) -> None:
        """Whether one that was there is held, and goes with the last that needs it; its version stays."""
        if was["auto"] and not now["auto"]:
            self.steps.run(f"{name} is there for others again", "apt-mark", "auto", name)
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

        Of what is essential apt never says so. What somebody installed since keeps what it recommends: that
        came with it, or would have. What nobody needs today came for neither, or it goes with these.
        """
        known = {*before, *self.wanted, *names}
        lasting = [name for name in essential() if now.get(name, {}).get("auto") and name not in known]
        lasting = [name for name in lasting if not others_in(taken_by([*names, name]), names, now, before)]
        gone = [*lasting, *taken_by([*names, *lasting], "--autoremove", *ONLY_DEPENDS)]
        gone = [name for name in dict.fromkeys(gone) if name not in known]
        auto = [name for name in gone if now.get(name, {}).get("auto")]
        since = {name for name, package in now.items() if name not in known}
        asked_for = {name for name in since if not now[name]["auto"]}
        needless = {*taken_by([], *EVEN_LIKED, verb="autoremove")} & since.difference(taken_by(names))
        others = needed_by(asked_for | needless, since) if auto else set()
        return [name for name in auto if name not in others]

    def data_of(
        self, names: list[str], brought: list[tuple[str, Prior]]
    ) -> tuple[dict[str, Prior], list[str]]:
        """Directories of these packages and of these roles that have data in them, with the look before each.

        And those of these packages alone that were there before: somebody's, or kept when they last left.
        """
        looks, priors = dict(self.folders), {prior.number: prior for _name, prior in brought}
        shipped: set[str] = set()
        for number in sorted(priors):
            of_look = [name for name, prior in brought if prior.number == number]
            if number == max(priors):
                of_look += [name for name in names if name not in dict(brought)]
            there = said("dpkg-query", "--listfiles", *of_look).splitlines()
            looks = {**dict.fromkeys(there, priors[number]), **looks}
            shipped.update(there)
        filled = [path for path in sorted(looks) if not path.startswith(NO_DATA) and is_filled(path)]
        data = {folder: looks[folder] for folder in filled if looks[folder].path(folder) is None}
        others = [folder for folder in filled if folder in shipped and folder not in data]
        return data, [folder for folder in others if owners(folder) <= {*names}]

    def keep_settings(self, names: list[str]) -> dict[str, Path] | None:
        """Copy what somebody wrote below /etc and a purge may take: settings of packages, files beside them.

        Returns each with its copy, none in check mode; None where one cannot be kept: then none may go.
        """
        if self.steps.module.check_mode:
            return {}
        written = [path for path in (*edited(names), *strangers(names)) if path not in self.files]
        kept = {path: self.steps.put_aside(path) for path in written}
        for path, copy in kept.items():
            try:
                keep_copy(path, copy)
            except OSError as error:
                self.steps.fail(f"{path}, which its package takes along", f"could not be kept: {error}")
                return None
        return kept

    def name_settings(self, kept: dict[str, Path]) -> None:
        """Say which of them are gone, and where each lies now; of the others nobody needs a copy."""
        for path, copy in kept.items():
            if os.path.lexists(path):
                copy.unlink()
                with suppress(OSError):  # up to the first that has something in it
                    os.removedirs(copy.parent)
            else:
                self.steps.changes.append(f"{path}: went with its package; as it was, it lies in {copy}")

    def put_away(self, folder: str) -> None:
        """Rename data to where its package does not look for it."""
        if os.path.isdir(folder) and not self.steps.module.check_mode:  # not below one that was put away
            with suppress(OSError):  # a mount point, which no package deletes
                os.rename(folder, folder + WAITING)

    def bring_back_data(self) -> None:
        """Rename it back; also what a killed run has put away."""
        for top in TOPS:
            for path in (path for depth in DEPTHS for path in sorted(Path(top).glob(f"{depth}{WAITING}"))):
                folder = str(path)[: -len(WAITING)]
                with suppress(OSError):
                    if os.path.isdir(folder) and not os.listdir(folder):
                        os.rmdir(folder)
                    os.rename(path, folder)


def taken_by(names: list[str], *options: str, verb: str = "purge") -> list[str]:
    """The packages that apt would take away with these."""
    text = said("apt-get", "--simulate", "--quiet", *options, verb, *names)
    words = (line.split() for line in text.splitlines() if line.startswith(("Purg ", "Remv ")))
    return [word[1].partition(":")[0] for word in words]


def needed_by(names: Iterable[str], among: set[str]) -> set[str]:
    """These packages, with those of AMONG that they depend on or recommend, and so on."""
    shown = "${Package}\t${Provides}\t${Pre-Depends},${Depends},${Recommends}\n"
    wants: dict[str, list[str]] = {}
    having: dict[str, set[str]] = {}
    for line in said("dpkg-query", "--show", f"--showformat={shown}").splitlines():
        name, provides, needs = line.split("\t")
        if name in among:
            wants[name] = PACKAGE.findall(needs)
            for each in (name, *PACKAGE.findall(provides)):
                having.setdefault(each, set()).add(name)
    found: set[str] = set()
    todo = [*names]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [other for each in wants.get(name, ()) for other in having.get(each, ())]
    return found


def edited(names: list[str]) -> list[str]:
    """Files of settings that packages brought, and that are not as these brought them."""
    lines = said("dpkg-query", "--show", "--showformat=${Conffiles}\n", *names).splitlines()
    known = (line.split() for line in lines if line.startswith(" /"))
    there = ((path, checksum) for path, checksum, *_word in known if os.path.isfile(path))
    return [path for path, checksum in there if checksum not in (md5(path), "newconffile")]


def strangers(names: list[str]) -> list[str]:
    """Files below /etc, in directories that these packages alone have, and that no package brought."""
    shipped = set(said("dpkg-query", "--listfiles", *names).splitlines())
    below = [path for path in sorted(shipped) if path.startswith(SETTINGS) and os.path.isdir(path)]
    tops = [path for path, having in owners_of(below).items() if having <= {*names}]
    found = {os.path.join(top, name) for each in tops for top, _, files in os.walk(each) for name in files}
    return sorted(found - shipped - owners_of(sorted(found - shipped)).keys())


def md5(path: str) -> str:
    """A file's checksum, as dpkg keeps it."""
    return hashlib.md5(Path(path).read_bytes()).hexdigest()  # noqa: S324 - dpkg's own choice


def essential() -> list[str]:
    """The packages that call themselves essential, in either word of Debian's."""
    shown = "${Package} ${Essential} ${Protected} ${Important}\\n"
    lines = said("dpkg-query", "--show", f"--showformat={shown}").splitlines()
    return [line.split()[0] for line in lines if "yes" in line.split()[1:]]


def owners(folder: str) -> set[str]:
    """The packages that have a directory."""
    return owners_of([folder]).get(folder, set())


def owners_of(paths: list[str]) -> dict[str, set[str]]:
    """Path → the packages that have it, for those that any has: `a, b:amd64: /var/lib/c`."""
    found: dict[str, set[str]] = {}
    for line in said("dpkg-query", "--search", *paths).splitlines() if paths else ():
        names, _, path = line.rpartition(": ")
        found.setdefault(path, set()).update(name.strip().partition(":")[0] for name in names.split(","))
    return found


def others_in(
    taken: list[str], names: list[str], now: dict[str, dict[str, Any]], before: set[str]
) -> list[str]:
    """Of what would go, what was there before, or somebody has asked for since.

    What came for others since then has those among them, or goes.
    """
    others = (name for name in taken if name in now and name not in names)
    return [name for name in others if name in before or not now[name]["auto"]]


def is_below(folder: str, others: Iterable[str]) -> bool:
    """Whether it lies in one of the others."""
    return any(folder.startswith(f"{other}/") for other in others)


def is_filled(folder: str) -> bool:
    """Whether something lies in a directory, or below its directories."""
    if not os.path.isdir(folder) or os.path.islink(folder):
        return False
    return any(names for _top, _folders, names in os.walk(folder))
