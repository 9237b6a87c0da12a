"""Sessions and services get the declared limits, and shared memory has the declared size."""

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder

MIB = 2**20

# Ends with what a process under each may use at most: a login session, then a service.
LOGIN = "su - root -c '{}'"
SERVICE = "systemd-run --quiet --wait --pipe --collect sh -c '{}'"


def grants(host: Host, resource: str, value: str) -> bool:
    """Whether this node's kernel lets a process raise a limit to this value (bytes or a number)."""
    return bool(host.run(f"prlimit --{resource}={value}:{value} true").rc == 0)


@pytest.mark.parametrize("session", [LOGIN, SERVICE], ids=["login", "service"])
def test_locked_memory(host: Host, expect: Expect, verdict: VerdictRecorder, session: str) -> None:
    wanted = expect.base_limit_memlock
    in_force = host.run(session.format("ulimit -S -l; ulimit -H -l")).stdout.split()
    value = wanted if wanted == "unlimited" else str(int(wanted) * 1024)
    if in_force != [wanted] * 2 and not grants(host, "memlock", value):
        verdict.unsupported(f"the kernel does not grant {wanted} here; in force: {in_force[-1:]} KiB")
    assert in_force == [wanted] * 2


@pytest.mark.parametrize("session", [LOGIN, SERVICE], ids=["login", "service"])
def test_open_files(host: Host, expect: Expect, verdict: VerdictRecorder, session: str) -> None:
    wanted = str(expect.base_limit_nofile)
    in_force = host.run(session.format("ulimit -S -n; ulimit -H -n")).stdout.split()
    if in_force != [wanted] * 2 and not grants(host, "nofile", wanted):
        verdict.unsupported(f"the kernel does not grant {wanted} here; in force: {in_force[-1:]}")
    assert in_force == [wanted] * 2


def test_shared_memory_has_its_size_and_takes_a_write(host: Host, expect: Expect) -> None:
    probe = "/dev/shm/causeway-verify.$$"  # noqa: S108 # shared memory is what is tested
    done = host.run(
        f"findmnt --bytes --noheadings --output SIZE /dev/shm && dd if=/dev/zero of={probe} bs=1M count=1; "
        f"status=$?; rm -f {probe}; exit $status"
    )
    assert done.rc == 0, done.stderr
    if expect.base_shm_gib:
        assert int(done.stdout) == round(expect.base_shm_gib * 1024) * MIB


def test_shared_memory_keeps_its_size_over_a_reboot(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    if not expect.base_shm_gib:
        verdict.not_declared("no size")
    done = host.run("findmnt --fstab --noheadings --output OPTIONS /dev/shm")
    assert f"size={round(expect.base_shm_gib * 1024)}m" in done.stdout.strip().split(",")
    verdict.rendered("proving it would mean a reboot")
