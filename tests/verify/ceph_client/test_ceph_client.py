"""What a node uses of storage: it writes and reads, no more than its quota, and nothing of anybody else's."""

import uuid
from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder

pytestmark = pytest.mark.deadline(300)

FULL = "Disk quota exceeded"
MOUNTED = "for i in $(seq 60); do mountpoint --quiet %s && exit; sleep 1; done; exit 1"


@pytest.fixture(name="folders")
def _folders(host: Host, expect: Expect, verdict: VerdictRecorder) -> list[dict[str, Any]]:
    """The CephFS exports, once they are mounted."""
    found = [one for one in expect.ceph_client_exports if one["kind"] == "cephfs"]
    if not found:
        verdict.not_declared("no CephFS is exported")
    for one in found:
        host.run_test(MOUNTED % one["mount"])
    return found


def of(kind: str, expect: Expect, verdict: VerdictRecorder) -> list[dict[str, Any]]:
    """The exports of a kind; the check ends where there are none."""
    found = [one for one in expect.ceph_client_exports if one["kind"] == kind]
    if not found:
        verdict.not_declared(f"no {kind} is exported")
    return found


def identities(expect: Expect) -> list[dict[str, Any]]:
    """The exports that are used in the name of an identity of Ceph's."""
    return [one for one in expect.ceph_client_exports if one["kind"] != "rgw"]


def test_a_file_comes_back_as_it_was(
    host: Host, folders: list[dict[str, Any]], verdict: VerdictRecorder
) -> None:
    for one in folders:
        file = f"{one['mount']}/.causeway-{uuid.uuid4().hex}"
        try:
            script = (
                f"set -o pipefail; head --bytes=3000000 /dev/urandom | tee {file} | sha256sum; sync {file}"
            )
            done = host.run("bash -c %s", script)
            if FULL in done.stderr:
                verdict.rendered(f"{one['mount']} has reached its quota: nothing more can be written")
            assert done.rc == 0, done.stderr
            # Past every cache: what is read comes from the cluster.
            read = f"set -o pipefail; dd if={file} iflag=direct bs=1M status=none | sha256sum"
            assert host.check_output("bash -c %s", read) == done.stdout.strip()
        finally:
            host.run(f"rm --force {file}")


@pytest.mark.experiment
def test_no_more_than_the_quota(host: Host, folders: list[dict[str, Any]], verdict: VerdictRecorder) -> None:
    limited = [one for one in folders if one.get("quota_bytes")]
    if not limited:
        verdict.not_declared("no quota is declared")
    for one in limited:
        file = f"{one['mount']}/.causeway-{uuid.uuid4().hex}"
        try:
            # What a folder holds is known to its clients a moment late.
            done = host.run(f"LC_ALL=C truncate --size={2 * one['quota_bytes']} {file}")
            assert FULL in done.stderr, done
        finally:
            host.run(f"rm --force {file}")


@pytest.mark.experiment
def test_nothing_beside_its_folder(host: Host, folders: list[dict[str, Any]]) -> None:
    for one in folders:
        words = f"--cluster {one['storage']} --id export.{one['name']}"
        script = (
            "place=$(mktemp --directory); "
            f"timeout 30 ceph-fuse {words} --client_fs {one['filesystem']} -r / "
            "--client_mount_timeout 3 $place; "
            "mountpoint --quiet $place; echo mounted=$?; umount --lazy $place 2>/dev/null; rmdir $place"
        )
        assert "mounted=0" not in host.run(script).stdout


def test_nothing_of_other_folders_past_the_metadata_server(host: Host, folders: list[dict[str, Any]]) -> None:
    for one in folders:
        words = f"--cluster {one['storage']} --id export.{one['name']} --pool {one['pool']}"
        assert host.run(f"timeout 60 rados {words} --namespace {one['name']} ls").rc == 0
        for elsewhere in ("", "--namespace somebody-elses"):
            done = host.run(f"LC_ALL=C timeout 60 rados {words} {elsewhere} ls")
            assert "Operation not permitted" in done.stderr, done


def test_an_image_comes_back_as_it_was(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    for one in of("rbd", expect, verdict):
        rbd = f"timeout 60 rbd --cluster {one['storage']} --id export.{one['name']} --no-progress"
        image = f"{one['pool']}/causeway-{uuid.uuid4().hex}"
        script = (
            "set -o pipefail; file=$(mktemp); trap 'rm --force $file' EXIT; "
            "head --bytes=4194304 /dev/urandom > $file; sha256sum < $file; "
            f"{rbd} import $file {image} && {rbd} export {image} - | sha256sum"
        )
        try:
            first, second = host.check_output("bash -c %s", script).splitlines()
            assert first == second
        finally:
            host.run(f"{rbd} rm {image}")


def test_no_image_in_anybody_elses_pool(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    for one in of("rbd", expect, verdict):
        words = f"--cluster {one['storage']} --id export.{one['name']}"
        assert host.run(f"timeout 60 rbd {words} ls {one['pool']}").rc == 0
        assert host.run(f"timeout 60 rbd {words} create --size 1M .mgr/causeway").rc != 0


def test_a_key_administers_nothing(host: Host, expect: Expect) -> None:
    for one in identities(expect):
        words = f"--cluster {one['storage']} --id export.{one['name']}"
        done = host.run(f"timeout 60 ceph {words} auth ls")
        assert "access denied" in done.stderr, done


def test_keys_are_for_their_group_only(host: Host, expect: Expect) -> None:
    names = [f"{one['storage']}.client.export.{one['name']}.keyring" for one in identities(expect)]
    objects = [one for one in expect.ceph_client_exports if one["kind"] == "rgw"]
    for name in names + [f"{one['storage']}.export.{one['name']}.s3" for one in objects]:
        file = host.file(f"/etc/ceph/{name}")
        assert (file.user, file.group, file.mode) == ("root", expect.ceph_client_group, 0o640)


def test_mounts_come_back(host: Host, folders: list[dict[str, Any]]) -> None:
    for one in folders:
        unit = f"causeway-cephfs-{one['storage']}-{one['name']}"
        shown = host.run(f"systemctl show -P Restart -P UnitFileState -P ActiveState {unit}").stdout.split()
        assert sorted(shown) == ["active", "always", "enabled"]


S3 = "timeout 120 s3cmd --no-progress --disable-multipart --max-retries 1 --config"


def objects(host: Host, one: dict[str, Any], script: str) -> Any:
    """Run a script with a new bucket, `$bucket`, a folder of its own, `$here`, and a client, `$s3`."""
    config = f"/etc/ceph/{one['storage']}.export.{one['name']}.s3"
    whole = (
        f"here=$(mktemp --directory); bucket=s3://causeway-{uuid.uuid4().hex}; s3='{S3} {config}'; "
        "trap '$s3 --recursive --force rb $bucket >/dev/null 2>&1; rm --recursive --force $here' EXIT; "
        f"config={config}; $s3 mb $bucket >&2 || exit 9; {script}"
    )
    return host.run("bash -c %s", whole)


def test_an_object_comes_back_as_it_was(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    for one in of("rgw", expect, verdict):
        script = (
            "set -e; head --bytes=3000000 /dev/urandom > $here/sent; $s3 put $here/sent $bucket/o >&2; "
            "$s3 get $bucket/o $here/got >&2; sha256sum < $here/sent; sha256sum < $here/got"
        )
        done = objects(host, one, script)
        assert done.rc == 0, done.stderr
        sent, got = done.stdout.splitlines()
        assert sent == got


def test_no_object_for_a_wrong_key_or_none(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    for one in of("rgw", expect, verdict):
        script = (
            "umask 077; sed 's/^secret_key = ./secret_key = -/' $config > $here/wrong; "
            "echo x > $here/x; $s3 put $here/x $bucket/x >&2 || exit 8; "
            "timeout 60 s3cmd --config $here/wrong ls $bucket; echo wrong=$?; "
            "curl --silent --output /dev/null --write-out 'none=%{http_code}' "
            f"--cacert /etc/ceph/{one['storage']}.gateways.pem "
            f"https://{one['gateways'][0]}/${{bucket#s3://}}/x"
        )
        done = objects(host, one, script)
        assert "SignatureDoesNotMatch" in done.stderr, done
        assert "wrong=0" not in done.stdout
        assert "none=403" in done.stdout, done


def test_gateways_show_a_certificate_of_their_authority(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    for one in of("rgw", expect, verdict):
        for gateway in one["gateways"]:
            assert host.run(f"curl --silent --output /dev/null https://{gateway}/").rc == 60
            authority = f"--cacert /etc/ceph/{one['storage']}.gateways.pem"
            assert host.run(f"curl --silent --output /dev/null {authority} https://{gateway}/").rc == 0
            assert host.run(f"curl --silent --output /dev/null http://{gateway}/").rc != 0


SMALL_BYTES = 1 << 26
"""A quota that a check may fill."""


@pytest.mark.experiment
def test_no_more_objects_than_the_quota(host: Host, expect: Expect, verdict: VerdictRecorder) -> None:
    limited = [one for one in of("rgw", expect, verdict) if 0 < one.get("quota_bytes", 0) <= SMALL_BYTES]
    if not limited:
        verdict.not_declared("no quota of object storage is small enough to be filled")
    for one in limited:
        script = (
            f"truncate --size={one['quota_bytes'] + 1} $here/much; $s3 put $here/much $bucket/much; "
            "echo x > $here/x; $s3 put $here/x $bucket/x >&2; echo little=$?"
        )
        done = objects(host, one, script)
        assert "QuotaExceeded" in done.stderr, done
        assert "little=0" in done.stdout, done
