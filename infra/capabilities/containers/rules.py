"""Container engines: registries by one name each, a folder of their own."""

import re
from collections.abc import Iterator
from typing import ClassVar

from infra.declaration import ClusterSpec
from infra.ground.problem import Problem, Severity, show
from infra.ground.rule import pools

SYSTEM = frozenset(
    ("bin", "boot", "dev", "etc", "lib", "lib64", "proc", "root", "run", "sbin", "sys", "tmp", "usr")
)
"""Folders at the top where images have no place."""
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
        """Folders of the system, and scratch, which is cleaned."""
        for path, _, _, pool in pools(spec):
            folder = pool.container_runtime.storage_path if pool.container_runtime else None
            if folder is None:
                continue
            at = f"{path}.container_runtime.storage_path"
            if not FOLDER.fullmatch(folder) or folder.split("/")[1] in SYSTEM:
                message = f"{show(folder)} is not a whole path to a folder that images may fill"
                yield Problem(at, message, show(folder), suggestion="/srv/containers")
            elif pool.scratch and f"{folder}/".startswith(f"{pool.scratch.path.rstrip('/')}/"):
                message = f"{show(folder)} is in the pool's scratch, which is cleaned"
                yield Problem(at, message, show(folder), suggestion="/srv/containers")


RULES = (RegistriesAreNamedOnce(), ImagesHaveAPlace())
