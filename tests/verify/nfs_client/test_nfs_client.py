"""What a node uses by NFS: it writes and reads, as nobody, and no more than there is room for."""

import errno
import uuid
from typing import Any

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask

GRACE_S = 120
"""A server that was just started serves nobody new for a while."""
pytestmark = pytest.mark.deadline(2 * GRACE_S)
MIB = 1 << 20
NOBODY = 65534
# By libnfs (16 of its functions, https://github.com/sahlberg/libnfs, version 5), so that no kernel is needed.
CLIENT = """
import ctypes, ctypes.util, errno, hashlib, json, os, sys, time
library = ctypes.CDLL(ctypes.util.find_library("nfs") or "libnfs.so.14")
library.nfs_init_context.restype = ctypes.c_void_p
library.nfs_get_error.restype = ctypes.c_char_p
server, folder, name, most, grace_s = sys.argv[1:6]
deadline = time.monotonic() + float(grace_s)

class Refused(Exception):
    pass

def call(function, *words):
    status = getattr(library, function)(context, *words)
    if status < 0:
        raise Refused(-status, library.nfs_get_error(context).decode(errors="replace"))
    return status

def connected():
    global context
    context = ctypes.c_void_p(library.nfs_init_context())
    library.nfs_set_version(context, 4)
    call("nfs_mount", server.encode(), folder.encode())

def opened(function, *words):
    handle = ctypes.c_void_p()
    while True:
        try:
            call(function, path, *words, ctypes.byref(handle))
            return handle
        except Refused as refused:
            if "GRACE" not in refused.args[1] or time.monotonic() > deadline:
                raise
            time.sleep(1)

path, found = ("/" + name).encode(), {}
try:
    connected()
    handle = opened("nfs_open2", os.O_CREAT | os.O_RDWR, 0o644)
    try:
        wrote = hashlib.sha256()
        try:
            for _ in range(int(most)):
                data, sent = os.urandom(1 << 20), 0
                while sent < len(data):
                    part = data[sent:]
                    sent += call("nfs_write", handle, ctypes.c_uint64(len(part)), part)
                wrote.update(data)
            call("nfs_fsync", handle)
        finally:
            library.nfs_close(context, handle)
        found["wrote"] = wrote.hexdigest()
        connected()  # with nothing in a cache
        status = (ctypes.c_uint64 * 32)()
        call("nfs_stat64", path, ctypes.byref(status))
        found["owner"] = status[4]
        handle = opened("nfs_open", os.O_RDONLY)
        read, buffer = hashlib.sha256(), ctypes.create_string_buffer(1 << 20)
        while count := call("nfs_read", handle, ctypes.c_uint64(1 << 20), buffer):
            read.update(buffer.raw[:count])
        library.nfs_close(context, handle)
        found["read"] = read.hexdigest()
    finally:
        library.nfs_unlink(context, path)
except Refused as refused:
    found["refused"] = list(refused.args)
print(json.dumps(found))
"""


@pytest.fixture(name="mounts")
def _mounts(expect: Expect, verdict: VerdictRecorder) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = expect.nfs_client_mounts
    if not found:
        verdict.not_declared("nothing is exported")
    return found


def write(host: Host, mount: dict[str, Any], most_mib: int) -> dict[str, Any]:
    """Write that much, read it back, remove it; what was found, or refused (errno, words)."""
    name = f".causeway-{uuid.uuid4().hex}"
    words = (mount["server"], mount["path"], name, str(most_mib), str(GRACE_S))
    found: dict[str, Any] = ask(host, CLIENT, *words)
    return found


def test_a_file_comes_back_as_it_was_and_is_nobodys(
    host: Host, mounts: list[dict[str, Any]], verdict: VerdictRecorder
) -> None:
    """As root, whom the server takes for nobody."""
    for mount in mounts:
        found = write(host, mount, 3)
        if found.get("refused", [0])[0] == errno.ENOSPC:
            verdict.rendered(f"{mount['path']} is full: nothing more can be written")
        assert "refused" not in found, found
        assert found["read"] == found["wrote"]
        assert found["owner"] == NOBODY


@pytest.mark.experiment
def test_no_more_than_there_is_room_for(
    host: Host, mounts: list[dict[str, Any]], verdict: VerdictRecorder
) -> None:
    limited = [mount for mount in mounts if mount["size_bytes"]]
    if not limited:
        verdict.not_declared("no export has a size of its own")
    smallest = min(limited, key=lambda mount: int(mount["size_bytes"]))
    if smallest["size_bytes"] > 256 * MIB:
        verdict.rendered("it would take too long to fill")
    status, said = write(host, smallest, smallest["size_bytes"] // MIB + 1)["refused"]
    assert status == errno.ENOSPC, f"it was not filled up: {said}"
    assert "refused" not in write(host, smallest, 1), "there is room again"


def test_nothing_beside_what_is_exported(host: Host, mounts: list[dict[str, Any]]) -> None:
    for mount in mounts:
        status, said = write(host, mount | {"path": "/etc"}, 1)["refused"]
        assert status in (errno.ENOENT, errno.EACCES, errno.EPERM), said


def test_the_kernel_mounts_it(host: Host, mounts: list[dict[str, Any]], verdict: VerdictRecorder) -> None:
    if host.run("grep --quiet --word-regexp nfs4 /proc/filesystems").rc:
        verdict.unsupported("no NFS client in the kernel here: programs use libnfs")
    for mount in mounts:
        file = f"{mount['mount']}/.causeway-{uuid.uuid4().hex}"
        try:
            assert host.check_output(f"echo there > {file} && cat {file}") == "there"
        finally:
            host.run(f"rm --force {file}")
