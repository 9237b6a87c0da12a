"""Packages come from the declared mirrors, and from nobody whom the system asked before."""

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder

OWN = "/etc/apt/sources.list.d/causeway-base.sources"
SYSTEMS = [f"/etc/apt/sources.list{name}" for name in ("", ".d/debian.sources", ".d/ubuntu.sources")]
FETCH_S = 20
"""For a small file, by apt's own way: its proxy, its authorities; tried again where a mirror is busy."""
FILES = 3
"""A suite, its updates and its security: no system has more that are asked for."""
pytestmark = pytest.mark.deadline(FILES * FETCH_S + 20)


@pytest.fixture
def archives(host: Host, expect: Expect, verdict: VerdictRecorder) -> dict[str, list[str]]:
    """URL → its suites, of the archives that are declared."""
    if not expect.base_mirror_packages:
        verdict.not_declared("apt asks whom the system asks")
    packages = expect.base_mirror_packages.rstrip("/")
    done = host.run(". /etc/os-release; echo $ID $VERSION_CODENAME")
    system, suite = done.stdout.split()
    beside = f"{packages}-security" if system == "debian" else packages
    security = expect.base_mirror_security.rstrip("/") or beside
    found = {packages: [suite, f"{suite}-updates"]}
    found.setdefault(security, []).append(f"{suite}-security")
    return found


def test_apt_asks_the_declared_archives_and_no_other_of_the_systems(
    host: Host, archives: dict[str, list[str]]
) -> None:
    form = "$(SOURCESENTRY) $(REPO_URI) $(RELEASE) $(COMPONENT)"
    done = host.run(f"apt-get indextargets --format '{form}' 'Created-By: Packages'")
    asked = [line.split() for line in done.stdout.splitlines()]
    # Archives that others have named are theirs.
    assert not [entry for entry, *_ in asked if entry.rpartition(":")[0] in SYSTEMS]
    own = {(url.rstrip("/"), suite) for entry, url, suite, _ in asked if entry.rpartition(":")[0] == OWN}
    assert own == {(url, suite) for url, suites in archives.items() for suite in suites}


def test_all_declared_components_are_asked_for(
    host: Host, expect: Expect, archives: dict[str, list[str]]
) -> None:
    done = host.run("apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages'")
    found = {
        component
        for url, component in map(str.split, done.stdout.splitlines())
        if url.rstrip("/") in archives
    }
    assert found >= set(expect.base_mirror_components or ["main"])


def test_what_they_sign_comes_by_apts_own_way(host: Host, archives: dict[str, list[str]]) -> None:
    for url, suites in archives.items():
        for suite in suites:
            done = host.run(
                f"cd /tmp && timeout {FETCH_S} /usr/lib/apt/apt-helper -o Acquire::Retries=3 download-file "
                f"{url}/dists/{suite}/InRelease causeway-mirror-$$ && rm causeway-mirror-$$"
            )
            assert done.rc == 0, f"{url} has no {suite}: {done.stdout}{done.stderr}"
