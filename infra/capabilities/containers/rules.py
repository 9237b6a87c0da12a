"""Container engines and registries: by one name each, with a folder of their own."""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

from infra.declaration import ClusterSpec, ImageCacheSpec, NodePoolSpec
from infra.ground.folders import CEPH, NOT_FOR_DATA, overlap, shared_by
from infra.ground.problem import Problem, Severity, nearest, show
from infra.ground.remote import secret_name, url_problems
from infra.ground.rule import Rule, pools

FOLDER = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._-]*){2,}")


class RegistriesAreNamedOnce:
    """Who is asked for an image stands in one place."""

    id: ClassVar[str] = "containers-registries"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Registries of one name, those without a mirror, and mirrors that are the registry itself."""
        for path, _, _, pool in pools(spec):
            seen = set[str]()
            for index, one in enumerate(pool.container_runtime.registries if pool.container_runtime else ()):
                at = f"{path}.container_runtime.registries[{index}]"
                if one.name in seen:
                    message = f"{show(one.name)} is named twice for pool {pool.name}"
                    yield Problem(f"{at}.name", message, show(one.name), hint="put its mirrors into one list")
                seen.add(one.name)
                if not one.mirrors:
                    message = f"{show(one.name)} has no mirror: it is asked itself without being named here"
                    yield Problem(f"{at}.name", message, show(one.name))
                if one.name in one.mirrors:
                    message = f"{show(one.name)} is asked last by itself, and is no mirror of its own"
                    yield Problem(f"{at}.mirrors", message, show(one.name))


class ImagesHaveAPlace:
    """Images are large, and come and go."""

    id: ClassVar[str] = "containers-storage"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Folders of the system and of a storage, and scratch, which is cleaned."""
        for path, region, _, pool in pools(spec):
            folder = pool.container_runtime.storage_path if pool.container_runtime else None
            if folder is None:
                continue
            at = f"{path}.container_runtime.storage_path"
            yield from _folder(at, folder, spec, region.name, pool, "/srv/containers")


def _folder(
    at: str, folder: str, spec: ClusterSpec, region: str, pool: NodePoolSpec, suggestion: str
) -> Iterator[Problem]:
    message = ""
    if not FOLDER.fullmatch(folder) or folder.split("/")[1] in NOT_FOR_DATA or overlap(folder, CEPH):
        message = "is not a whole path to a folder that images may fill"
    elif pool.scratch and overlap(folder, pool.scratch.path):
        holds = len(folder) < len(pool.scratch.path.rstrip("/"))
        message = f"{'holds' if holds else 'is in'} the pool's scratch, which is cleaned"
    elif mount := shared_by(spec, region, folder):
        message = f"is not this node's own: the region shares {mount}"
    if message:
        yield Problem(at, f"{show(folder)} {message}", show(folder), suggestion=suggestion)


NAME = re.compile(r"[a-z0-9][a-z0-9-]*(\.[a-z0-9-]*[a-z0-9])+")
"""A registry without a port: engines tell it from a user's name by its dot."""


class ARegionHasOneRegistry:
    """A registry stands on a node of its region, under a name that images can have."""

    id: ClassVar[str] = "registries-places"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Regions and pools that are not there, regions with two, names that two have, folders of others."""
        regions = {region.name: region for region in spec.regions}
        places, names = set[str](), set[str]()
        for index, one in enumerate(spec.registries):
            at = f"registries[{index}]"
            if one.name in names:
                message = f"{show(one.name)} is the name of another registry"
                yield Problem(f"{at}.name", message, show(one.name))
            names.add(one.name)
            if one.region in places:
                message = f"region {show(one.region)} has a registry already"
                yield Problem(f"{at}.region", message, show(one.region), hint="put its caches into one")
            places.add(one.region)
            if one.region not in regions:
                yield _unknown(f"{at}.region", one.region, "a region", regions)
                continue
            found = {pool.name: pool for pool in regions[one.region].pools}
            if one.pool not in found:
                yield _unknown(f"{at}.pool", one.pool, f"a pool of region {one.region}", found)
            else:
                pool, place = found[one.pool], f"{at}.storage_path"
                yield from _folder(place, one.storage_path, spec, one.region, pool, "/srv/registry")
                engine = pool.container_runtime.storage_path if pool.container_runtime else None
                if engine and overlap(one.storage_path, engine):
                    message = f"{show(one.storage_path)} is where pool {pool.name} keeps its containers"
                    yield Problem(place, message, show(one.storage_path), suggestion="/srv/registry")


class CachesAreAsked:
    """What is kept of other registries has one name, and a URL and password by which it is asked."""

    id: ClassVar[str] = "registries-caches"
    severity: ClassVar[Severity] = "error"

    def check(self, spec: ClusterSpec) -> Iterator[Problem]:
        """Names that come twice or are one of ours, URLs that are none, names without a password."""
        own = {one.name for one in spec.registries}
        for index, one in enumerate(spec.registries):
            at = f"registries[{index}]"
            if not NAME.fullmatch(one.name):
                yield Problem(f"{at}.name", f"{show(one.name)} {NO_NAME}", show(one.name))
            if one.push:
                yield from secret_name(f"{at}.push.password_secret", one.push.password_secret)
            if not one.push and not one.caches:
                message = f"{one.name} holds nothing: nobody pushes, and there is no cache"
                yield Problem(at, message, hint="declare push, or caches")
            seen = set[str]()
            for number, cache in enumerate(one.caches):
                yield from _cache(f"{at}.caches[{number}]", cache, seen, own)
                seen.add(cache.name)


NO_NAME = "is not a name with a dot and without a port, such as images.tokyo"


def _cache(at: str, cache: ImageCacheSpec, seen: set[str], own: set[str]) -> Iterator[Problem]:
    if cache.name in own:
        message = f"{show(cache.name)} is a registry of this cluster: what is pulled of it is kept anyway"
        yield Problem(f"{at}.name", message, show(cache.name), hint="leave it out")
    elif cache.name in seen:
        yield Problem(f"{at}.name", f"{show(cache.name)} is cached twice", show(cache.name))
    elif not NAME.fullmatch(cache.name):
        yield Problem(f"{at}.name", f"{show(cache.name)} {NO_NAME}", show(cache.name))
    wrong = list(url_problems(f"{at}.url", cache.url))
    yield from wrong
    if not wrong and "?" in cache.url:
        message = f"{show(cache.url)} asks for something, and a registry is asked for images"
        yield Problem(f"{at}.url", message, show(cache.url), suggestion=cache.url.partition("?")[0])
    elif not wrong and cache.password_secret and cache.url.startswith("http://"):
        message = "sends the password readable to whoever listens on the way"
        yield Problem(f"{at}.url", message, hint="declare https, or no user and no password")
    if cache.password_secret is not None:
        yield from secret_name(f"{at}.password_secret", cache.password_secret)
    if bool(cache.username) != bool(cache.password_secret):
        missing = "password_secret" if cache.username else "username"
        yield Problem(at, f"has no {missing}", hint="a registry asks for both, or for none")


def _unknown(at: str, name: str, what: str, known: Iterable[str]) -> Problem:
    there = list(known)
    return Problem(at, f"{show(name)} is not {what}", show(name), suggestion=nearest(name, there))


RULES: tuple[Rule, ...] = (
    RegistriesAreNamedOnce(),
    ImagesHaveAPlace(),
    ARegionHasOneRegistry(),
    CachesAreAsked(),
)
