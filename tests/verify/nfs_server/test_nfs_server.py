"""A server of files by NFS: its file systems are there, strangers get nothing, it comes back."""

from ipaddress import ip_address, ip_network

import pytest
from testinfra.host import Host

from tests.verify.support import Expect, VerdictRecorder, ask

pytestmark = pytest.mark.deadline(60)

GANESHA = "nfs-ganesha.service"
# By hand, for a server has no client's programs: one COMPOUND of PUTROOTFH and a LOOKUP for each part of the
# path (RFC 7530, sections 15.2, 16.21 and 16.13); the answer's status is that of the last one.
KNOCK = """
import json, socket, struct, sys
address, path = sys.argv[1:]
def word(*numbers):
    return struct.pack(f">{len(numbers)}I", *numbers)
def text(value):
    return word(len(value)) + value + bytes(-len(value) % 4)
parts = [part.encode() for part in path.strip("/").split("/")]
root = word(0) + text(b"causeway") + word(0, 0, 0)  # AUTH_SYS: stamp, machine, user, group, no more groups
call = word(1, 0, 2, 100003, 4, 1) + word(1) + text(root) + word(0, 0)
call += word(0, 0, 1 + len(parts)) + word(24) + b"".join(word(15) + text(part) for part in parts)
with socket.create_connection((address, 2049), 20) as server:
    server.settimeout(20)
    server.sendall(word(0x80000000 | len(call)) + call)
    answer = b""
    while len(answer) < 32:
        answer += server.recv(4096) or sys.exit("the server said too little")
accepted, status = struct.unpack(">II", answer[24:32])
print(json.dumps(status if accepted == 0 else -accepted))
"""
SERVED, NO_ENTRY, ACCESS = 0, 2, 13
"""nfsstat4 (RFC 7530, section 13.1)."""


@pytest.fixture(name="unit")
def _unit(host: Host) -> str:
    """The server that this node has."""
    kernel = host.file("/etc/exports.d/causeway.exports").exists
    return "nfs-server.service" if kernel else GANESHA


def test_each_file_system_is_mounted_with_its_size(
    host: Host, expect: Expect, verdict: VerdictRecorder
) -> None:
    sized = [export for export in expect.nfs_server_exports if "size_bytes" in export]
    if not sized:
        verdict.not_declared("every export is a folder")
    for export in sized:
        found = host.check_output(
            "findmnt --noheadings --bytes --output SOURCE,FSTYPE,SIZE %s", export["path"]
        )
        source, kind, size = found.split()
        assert kind == "ext4"
        # Inodes and journal take a part of it.
        assert 0.5 * export["size_bytes"] < int(size) <= export["size_bytes"]
        file = host.check_output("losetup --noheadings --output BACK-FILE %s", source).strip()
        assert host.file(file).size == export["size_bytes"]


def test_it_listens_where_it_should_and_for_nothing_older(host: Host, expect: Expect, unit: str) -> None:
    lines = host.check_output("ss --no-header --listening --tcp --udp --numeric --processes").splitlines()
    ours = {line.split()[4] for line in lines if "ganesha" in line or ":2049 " in line}
    assert f"{expect.nfs_server_address}:2049" in {
        place.replace("[::ffff:", "").replace("]", "") for place in ours
    }
    assert not [line for line in lines if ":111 " in line], f"rpcbind listens, and {unit} does not need it"


def test_who_is_no_client_gets_nothing(host: Host, expect: Expect) -> None:
    """Asked from the server itself, by its own address."""
    own = ip_address(expect.nfs_server_address)
    for export in expect.nfs_server_exports:
        is_client = any(own in ip_network(client) for client in export["clients"])
        wanted = (SERVED,) if is_client else (NO_ENTRY, ACCESS)
        assert ask(host, KNOCK, str(own), export["path"]) in wanted, export["path"]


def test_it_comes_back(host: Host, unit: str) -> None:
    shown = host.check_output("systemctl show -P UnitFileState -P ActiveState %s", unit).split()
    assert sorted(shown) == ["active", "enabled"]
    needs = host.check_output("systemctl show -P Requires %s", unit)
    assert "causeway-nfs-volumes.service" in needs
