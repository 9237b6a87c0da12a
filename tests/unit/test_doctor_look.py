"""What runs on a machine that somebody has: on this one, as far as it may be looked at by anybody."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import md5
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.doctor import look, trip
from infra.doctor.answer import read
from infra.doctor.wanted import DISKS
from infra.drift.assembly import packed_files, with_request
from infra.ground.sudo import Become

ASKED: dict[str, Any] = {
    **{"files": [], "texts": [], "folders": [], "units": [], "ports": [], "programs": {}, "sites": []},
    "disks": list(DISKS),
}


def asked(**changes: Any) -> dict[str, Any]:
    return {**ASKED, "seen": {"ours": set(), "brought": {}, "units": {}}, **changes}


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one.getsockname()[1]


def test_whose_a_file_is(tmp_path: Path) -> None:
    texts = {
        "record": "# somebody's", "named": "# Causeway: x\n", "ansible": "# Ansible managed\nx",
        "brought": "as it came\n", "empty": "\n", "strange": "server x\n", "far": "a\n\n# causeway\n",
    }  # fmt: skip
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    request = asked()
    request["seen"]["ours"] = {str(tmp_path / "record")}
    digest = md5(texts["brought"].encode(), usedforsecurity=False).hexdigest()
    request["seen"]["brought"] = {str(tmp_path / "brought"): digest}
    assert {name: look.whose(request, str(tmp_path / name)) for name in texts} == {
        "record": "ours", "named": "ours", "ansible": "ansible", "brought": "package", "empty": "package",
        "strange": "theirs", "far": "theirs",
    }  # fmt: skip
    assert look.whose(request, str(tmp_path)) == "theirs"


def test_folders_and_texts_are_read_and_nothing_is_made_of_comments(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# a comment\n\n192.0.2.1   db  # theirs\n")
    (tmp_path / "a.hcl").write_text("x = 1\n")
    found = look.files(asked(texts=[str(tmp_path / "hosts")], folders=[f"{tmp_path}/*.hcl"]))
    assert found["files"] == {str(tmp_path / "hosts"): "theirs", str(tmp_path / "a.hcl"): "theirs"}
    assert found["lines"] == {str(tmp_path / "hosts"): ["192.0.2.1 db"]}


@pytest.mark.parametrize(
    ("unit", "is_ours"),
    [
        *(("chrony.service", True), ("ceph-mon@a.service", True), ("vmagent.service", True)),
        *(("consul.service", False), ("ceph-osd@0.service", False), ("", False)),
    ],
)
def test_a_unit_is_ours_by_itself_or_by_a_file_of_it(unit: str, is_ours: bool) -> None:
    request = asked()
    request["seen"]["ours"] = {
        "chrony.service",
        "/etc/systemd/system/ceph-mon@.service.d/causeway.conf",
        "/etc/systemd/system/vmagent.service",
    }
    assert look.is_our_unit(request, unit) is is_ours


def test_a_port_is_found_with_who_has_it(listening: int) -> None:
    wanted = [["tcp", listening, listening, False], ["udp", listening, listening, False]]
    found = look.ports(asked(ports=wanted))
    (one,) = found["listening"]
    assert (one["protocol"], one["port"], one["ours"]) == ("tcp", listening, False)
    assert one["program"] == Path(f"/proc/{os.getpid()}/comm").read_text().strip()


@pytest.mark.parametrize(
    ("address", "taken"),
    [
        *(("127.0.0.1", True), ("0.0.0.0", True), ("::", True), ("::ffff:127.0.0.1", True)),  # noqa: S104
        *(("127.0.0.53", False), ("127.0.0.54", False), ("192.0.2.1", False), ("::1", False)),
    ],
)
def test_which_addresses_take_loopbacks_port(address: str, taken: bool) -> None:
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    shown = "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
    assert look.takes_loopback(shown) is taken


def test_a_port_of_loopback_alone_is_free_where_others_have_it_elsewhere() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.53", 0))
        one.listen()
        port = one.getsockname()[1]
        assert look.ports(asked(ports=[["tcp", port, port, True]])) == {"listening": []}
        (met,) = look.ports(asked(ports=[["tcp", port, port, False]]))["listening"]
        assert met["loopback"] is False
        with socket.socket() as near:
            near.bind(("127.0.0.1", port))
            near.listen()
            (met,) = look.ports(asked(ports=[["tcp", port, port, True]]))["listening"]
            assert met["loopback"] is True


def test_a_refusal_is_a_way_that_is_open_and_silence_is_not(listening: int) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        refusing = free.getsockname()[1]
    sites = [["127.0.0.1", listening], ["127.0.0.1", refusing], ["255.255.255.255", 9]]
    assert look.sites(asked(sites=sites)) == {"closed": [2]}


def test_a_topic_that_fails_or_hangs_is_named_and_the_rest_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(_request: dict[str, Any]) -> dict[str, Any]:
        raise KeyError("x")

    def hangs(_request: dict[str, Any]) -> dict[str, Any]:
        time.sleep(20)
        return {}

    topics = {"a": fails, "b": lambda _request: {"ufw": True}, "c": hangs, "d": fails}
    monkeypatch.setattr(look, "TOPICS", topics)
    found = look.answer_to(dict(ASKED), 0.5)
    assert found["unseen"] == {"a": "KeyError: 'x'", "c": "it hangs"}
    assert found["ufw"] is True


def test_a_disk_without_room_for_files_and_one_that_is_read_only_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both may have gigabytes free; btrfs has no number of files."""
    found = {
        "/": SimpleNamespace(f_bavail=9 << 20, f_frsize=1024, f_files=100, f_favail=7, f_flag=os.ST_NODEV),
        "/usr": SimpleNamespace(f_bavail=9 << 20, f_frsize=1024, f_files=0, f_favail=0, f_flag=os.ST_RDONLY),
    }
    monkeypatch.setattr(os, "statvfs", found.__getitem__)
    room = look.room(asked(disks=["/", "/usr"]))
    assert room["disk_mib"] == {"/": 9216, "/usr": 9216}
    assert (room["disk_files"], room["read_only"]) == ({"/": 7}, ["/usr"])


AS_ROOT = Become("s", "n", "root")


def test_it_travels_as_one_file_and_writes_nothing(tmp_path: Path) -> None:
    data = with_request(packed_files(trip.FILES), ASKED, 20)
    done = subprocess.run(
        ["sh", "-c", trip.command(AS_ROOT).replace(trip.PYTHON, sys.executable)],
        input=data, capture_output=True, cwd=tmp_path, timeout=60, check=True,
    )  # fmt: skip
    machine = read(done.stdout)
    assert machine.os_name
    assert machine.memory_mib > 0
    assert set(machine.disk_mib) == set(DISKS)
    assert list(tmp_path.iterdir()) == []


def test_without_python_the_shell_answers() -> None:
    done = subprocess.run(
        ["sh", "-c", trip.command(AS_ROOT).replace(trip.PYTHON, "/nowhere/python3")],
        input=b"", capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["python"] == ""
    assert read(done.stdout).os_name


def test_tunnels_of_programs_count_and_a_kernel_that_knows_none_hides_no_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    links = [{"ifname": "eth0", "addr_info": [{"family": "inet", "local": "192.0.2.1", "prefixlen": 24}]}]
    told = {"ip": json.dumps(links), "wg": "wg-office wg-home\n", "systemctl": ""}

    def say(*argv: str) -> str:
        if told[argv[0]] == "fails":
            raise ValueError("wg fails: Protocol not supported")
        return told[argv[0]] if "route" not in argv else "[]"

    monkeypatch.setattr(look, "say", say)
    for wg, tunnels in ((told["wg"], ["wg-home", "wg-office"]), ("", []), ("fails", [])):
        told["wg"] = wg
        found = look.network(asked())
        assert found["wireguard"] == tunnels
        assert found["interfaces"] == {"eth0": ["192.0.2.1/24"]}


PORT_22: list[Any] = [
    {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 22}}
]
COUNTER: dict[str, Any] = {"counter": {"packets": 0, "bytes": 0}}
COMMENT = {"xt": {"type": "match", "name": "comment"}}
ACCEPTS = [*PORT_22, COUNTER, {"accept": None}]


@pytest.mark.parametrize(
    ("policy", "rules", "shut"),
    [
        ("accept", [], False),
        ("drop", [], True),
        ("accept", [ACCEPTS], False),
        # iptables -A INPUT -j REJECT, as images of clouds have it, and what nft 1.0.6 says of it.
        ("accept", [ACCEPTS, [COUNTER, {"xt": {"type": "target", "name": "REJECT"}}]], True),
        ("accept", [ACCEPTS, [COMMENT, COUNTER, {"drop": None}]], True),
        (
            "accept",
            [ACCEPTS, [{"log": None}, {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}]],
            True,
        ),
        ("accept", [[*PORT_22, COUNTER, {"drop": None}]], False),
        ("accept", [[{"xt": {"type": "match", "name": "state"}}, {"drop": None}]], False),
        ("accept", [[{"xt": None}, {"drop": None}]], False),
        ("accept", [[COUNTER, {"jump": {"target": "ours"}}]], False),
    ],
)
def test_a_chain_that_lets_in_only_what_it_names_is_told(
    monkeypatch: pytest.MonkeyPatch, policy: str, rules: list[Any], shut: bool
) -> None:
    """By its policy, or by a last rule that takes whatever is left."""
    chain = {"family": "ip", "table": "filter", "name": "INPUT", "hook": "input", "policy": policy}
    said = {
        ("nft", "list", "tables"): "table ip filter\n",
        ("nft", "-j", "list", "chains"): json.dumps(
            {"nftables": [{"metainfo": {}}, {"chain": chain}, {"chain": {**chain, "hook": "forward"}}]}
        ),
        ("nft", "-j", "list", "chain", "ip", "filter", "INPUT"): json.dumps(
            {"nftables": [{"metainfo": {}}, {"chain": chain}, *({"rule": {"expr": rule}} for rule in rules)]}
        ),
    }
    monkeypatch.setattr(look, "say", lambda *argv: said[argv])
    assert look.firewall(asked())["firewall"] == (["ip filter INPUT"] if shut else [])


def test_a_role_that_has_left_is_none_that_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may have ended before the record, or what was before the role, said so."""
    for name, text in {
        "RECORD": {"roles": {"base": {}, "consul": {}}},
        "BEGUN": {
            "roles": {"base": 1, "consul": 2, "frr": 3},
            "left": ["consul"],
            "asked": {"frr": ["f*"]},
        },
    }.items():
        (tmp_path / name).write_text(json.dumps(text))
        monkeypatch.setattr(look, name, str(tmp_path / name))
    assert look.begun(asked()) == {"begun": ["base", "frr"], "asked": {"frr": ["f*"]}}
