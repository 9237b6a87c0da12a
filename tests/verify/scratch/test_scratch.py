"""Scratch is everybody's, and what is old goes, unless somebody has it open."""

import json
import uuid

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, ask, run_anew

pytestmark = pytest.mark.deadline(60)

UNIT = "causeway-scratch"

OLD = """
import json, os, sys, time
sys.path.insert(0, "/usr/local/lib/causeway")
import scratch
folder, days = sys.argv[1], float(sys.argv[2])
os.mkdir(folder)
for name in ("old", "held", "fresh"):
    with open(folder + "/" + name, "w") as file:
        file.write(name)
held = open(folder + "/held")
# When an inode changed nobody can set: the cleaning is made to believe that these days have passed.
cleaner = scratch.Scratch(folder, scratch.Clock(time.time() + (days + 1) * 86400))
os.utime(folder + "/fresh", (cleaner.clock.now, cleaner.clock.now))
cleaner.by_age(days)
print(json.dumps([sorted(os.listdir(folder)), held.read()]))
"""
FULL = """
import json, os, sys, time
sys.path.insert(0, "/usr/local/lib/causeway")
import scratch
folder = sys.argv[1]
cleaner = scratch.Scratch(folder, scratch.Clock(time.time() + 86400))
for number, name in enumerate("abc"):
    with open(folder + "/" + name, "wb") as file:
        file.write(bytes(4 << 20))
    used_at = cleaner.clock.now - 7200 + number
    os.utime(folder + "/" + name, (used_at, used_at))
held = open(folder + "/a")
cleaner.by_room(70, 55)
print(json.dumps(sorted(os.listdir(folder))))
"""


def test_everybody_may_write_there(host: Host, expect: Expect) -> None:
    file = host.file(expect.scratch_path)
    assert (file.user, file.mode) == ("root", 0o1777)
    name = f"{expect.scratch_path}/.causeway-{uuid.uuid4().hex}"
    done = host.run(f"setpriv --reuid=65534 --clear-groups sh -c 'echo x > {name}' && rm {name}")
    assert done.rc == 0, done.stderr


def test_what_is_old_goes_and_what_is_open_stays(host: Host, expect: Expect) -> None:
    folder = f"{expect.scratch_path}/causeway-{uuid.uuid4().hex}"
    try:
        left, read = ask(host, OLD, folder, str(expect.scratch_days))
    finally:
        host.run(f"rm --recursive --force {folder}")
    assert left == ["fresh", "held"]
    assert read == "held"


@pytest.mark.experiment
def test_the_oldest_goes_when_the_disk_fills(host: Host) -> None:
    """A small disk of its own, three quarters full; of the oldest somebody has one open."""
    folder = f"/run/causeway-{uuid.uuid4().hex}"
    try:
        host.run_test(f"mkdir {folder} && mount -t tmpfs -o size=16m scratch {folder}")
        assert ask(host, FULL, folder) == ["a", "c"]
    finally:
        host.run(f"umount {folder}; rmdir {folder}")


def test_a_run_leaves_what_is_new(host: Host, expect: Expect) -> None:
    name = f"{expect.scratch_path}/.causeway-{uuid.uuid4().hex}"
    done = host.run(f"touch {name} && {run_anew(f'{UNIT}.service')} && rm {name}")
    assert done.rc == 0, done.stderr


def test_it_is_cleaned_regularly(host: Host, expect: Expect) -> None:
    shown = host.run(f"systemctl show -P UnitFileState -P ActiveState {UNIT}.timer").stdout.split()
    assert sorted(shown) == ["active", "enabled"]
    listed = json.loads(host.check_output(f"systemctl list-timers --output=json {UNIT}.timer"))
    assert listed, "when it runs next is known"
    assert f"OnUnitActiveSec={expect.scratch_interval_s}s" in host.run(f"systemctl cat {UNIT}.timer").stdout
