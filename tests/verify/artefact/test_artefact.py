"""What the role artefact brought to a node: it runs, and nothing of the way it came is left.

The program is that of the role's own test (roles/artefact/molecule/user): on real nodes the checks of
the roles that include this one look at theirs.
"""

from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder

PROGRAM = "/usr/local/bin/artefact-user"
SIZE_BYTES = 40_000_000
"""And a few more: what makes it a program."""


def test_it_is_whole_and_runs(host: Host) -> None:
    assert SIZE_BYTES < host.file(PROGRAM).size < SIZE_BYTES + 100
    done = host.run(PROGRAM)
    assert (done.rc, done.stdout) == (0, "it runs\n")


def test_it_has_its_owner_and_mode(host: Host, expect: Expect) -> None:
    done = host.run(f"stat --format='%U 0%a' {PROGRAM}")
    assert done.stdout.split() == [expect.artefact_owner, expect.artefact_mode]


def test_who_asked_was_told(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    if not expect.artefact_notify:
        verdict.not_declared("nobody is told of a new one")
    assert host.file("/var/lib/artefact-user-notes").content_string == "it is new\n"


def test_nothing_is_handed_on_any_more(host: Host) -> None:
    assert host.run("systemctl list-units --all --no-legend 'causeway-artefact-*'").stdout == ""
    assert host.run("ls -A /usr/local/bin").stdout.split() == [PROGRAM.rpartition("/")[2]]
