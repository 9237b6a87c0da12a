"""The probe as it runs on a node: one bare file, started by the Python that is there, on real files."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from infra.drift import probe
from infra.drift.answer import read_answer
from infra.drift.looks import KINDS, LARGE_BYTES, Look, shown_key
from infra.drift.node import answer, question
from infra.drift.trip import PYTHON, probe_source, script

SALT = "5a17"


def ask(mode: str, *entries: list[Any], limit_s: int = 20) -> Any:
    """What a node would answer, by way of the script that is really sent."""
    request = {"mode": mode, "salt": SALT, "entries": list(entries)}
    said = subprocess.run(
        ["sh", "-c", PYTHON],
        input=script(request, limit_s),
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    ).stdout
    read_answer(said, request)  # nothing that an honest node says is refused
    return json.loads(said)


def seal(kind: str, key: Path | str, **how: Any) -> dict[str, Any]:
    found: dict[str, Any] = ask("seal", [kind, str(key), how, {}])["values"][0]
    return found


def scan(kind: str, key: Path | str, want: dict[str, Any], **how: Any) -> dict[str, Any] | None:
    values = ask(how.pop("mode", "scan"), [kind, str(key), how, want])["values"]
    return values[0][1] if values else None


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings"
    path.write_text("one\ntwo\n")
    path.chmod(0o644)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp/pytest-of-root") or "pytest" in folder.name:  # noqa: S108 - pytest's own
            folder.chmod(0o755)
    return path


def want(file: Path) -> dict[str, Any]:
    return {k: v for k, v in seal("file", file).items() if not k.startswith("_")}


def test_nothing_differs_on_an_untouched_file(file: Path) -> None:
    assert scan("file", file, want(file)) is None


def test_a_changed_byte_is_found_with_its_text_and_when(file: Path) -> None:
    before = want(file)
    file.write_text("one\nTwo\n")
    found = scan("file", file, before)
    assert found is not None
    assert set(found["found"]) == {"digest"}
    assert found["text"] == "one\nTwo\n"
    assert abs(found["since"] - time.time()) < 60


@pytest.mark.parametrize(
    ("change", "aspect", "value"),
    [
        (lambda path: path.chmod(0o600), "mode", "0600"),
        (lambda path: os.chown(path, 1, 0), "owner", "daemon"),
        (lambda path: os.chown(path, 0, 1), "group", "daemon"),
        (lambda path: path.unlink(), "type", "absent"),
        (lambda path: (path.unlink(), path.mkdir()), "type", "directory"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/passwd")), "type", "link"),
        (lambda path: subprocess.run(f"rm {path} && mkfifo {path}", shell=True), "type", "special"),  # noqa: S602
    ],
)
def test_every_property_of_a_file_is_compared(file: Path, change: Any, aspect: str, value: str) -> None:
    if os.geteuid():
        pytest.skip("only root can give files away")
    before = want(file)
    change(file)
    found = scan("file", file, before)
    assert found is not None
    assert found["found"][aspect] == value


def test_secrets_stay_on_the_node(file: Path) -> None:
    file.chmod(0o600)
    before = want(file)
    assert "_text" not in seal("file", file)
    file.write_text("password\n")
    found = scan("file", file, before)
    assert found is not None
    assert "text" not in found
    assert "password" not in json.dumps(found)


def test_a_readable_file_in_a_closed_directory_is_no_public_text(file: Path) -> None:
    assert "_text" in seal("file", file)
    file.parent.chmod(0o700)
    assert "_text" not in seal("file", file)


@pytest.mark.parametrize("size", [10, LARGE_BYTES + 1], ids=["small", "large"])
def test_hashes_are_salted(file: Path, size: int) -> None:
    import hashlib

    file.write_bytes(b"x" * size)
    digest = seal("file", file)["digest"]
    assert digest == hashlib.sha256(SALT.encode() + file.read_bytes()).hexdigest()[:32]
    assert digest not in hashlib.sha256(file.read_bytes()).hexdigest()


def test_a_large_file_is_read_again_only_when_something_about_it_changed(file: Path) -> None:
    file.write_bytes(b"x" * (LARGE_BYTES + 1))
    sealed = seal("file", file)
    want, stamp = {"digest": sealed["digest"]}, sealed["_inputs"]
    assert scan("file", file, want, sealed=stamp) is None
    unread = [*stamp[:-1], "what no reading gives"]
    assert scan("file", file, {"digest": unread[-1]}, sealed=unread) is None, "not read"
    assert scan("file", file, {"digest": unread[-1]}, mode="thorough", sealed=unread), "read"
    assert scan("file", file, {"immutable": True}, sealed=unread), "the bit is looked at all the same"
    before = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"y")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert scan("file", file, want, sealed=stamp), "one byte, with its size and mtime as before"


def test_the_sha1_that_ansible_reports_is_read_only_when_asked_for(file: Path) -> None:
    assert "_sha1" not in seal("file", file)
    assert seal("file", file, sha1=True)["_sha1"] == _sha1(file)


def _sha1(file: Path) -> str:
    said = subprocess.run(["sha1sum", str(file)], capture_output=True, text=True, check=True).stdout
    return said.split()[0]


def test_binary_content_is_compared_and_not_shown(file: Path) -> None:
    before = want(file)
    file.write_bytes(b"\0\xff")
    found = scan("file", file, before)
    assert found is not None
    assert found["text"] is None


def test_a_listing_names_what_was_added(tmp_path: Path) -> None:
    (tmp_path / "a.conf").touch()
    names = seal("listing", tmp_path)["names"]
    (tmp_path / "zz.conf").touch()
    found = scan("listing", tmp_path, {"names": names})
    assert found is not None
    assert found["found"]["names"] == ["a.conf", "zz.conf"]


def test_an_effective_setting_is_asked_for_only_when_a_file_changed(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text("port 22\n")
    how = {
        "inputs": [str(tmp_path)],
        "argv": ["sh", "-c", f"cat {tmp_path}/*.conf; echo ran >> {tmp_path}.log"],
    }
    sealed = seal("effective", "program", **how)
    assert sealed["output"] == ["port 22"]
    log = tmp_path.with_suffix(".log")
    how["sealed"] = sealed["_inputs"]
    assert scan("effective", "program", {"output": ["port 22"]}, **how) is None
    assert log.read_text() == "ran\n", "the files are as they were: no need to start the program"
    (tmp_path / "y.conf").write_text("\n")
    assert scan("effective", "program", {"output": ["port 22"]}, **how) is None
    assert log.read_text() == "ran\nran\n"
    (tmp_path / "y.conf").write_text("port 2222\n")
    found = scan("effective", "program", {"output": ["port 22"]}, **how)
    assert found is not None
    assert found["found"]["output"] == ["port 22", "port 2222"]


def test_a_line_with_a_password_in_an_address_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("proxy http://me:secret@proxy\n")
    how = {"inputs": [str(tmp_path)], "argv": ["cat", str(tmp_path / "x")]}
    assert "secret" not in json.dumps(seal("effective", "program", **how))


def test_what_cannot_be_read_is_a_finding_and_stops_nothing(file: Path) -> None:
    entries = [
        ["sysfs", "/proc/sys/no/such/thing", {}, {"value": "1"}],
        ["listing", str(file), {}, {"names": []}],
        ["effective", "x", {"inputs": [], "argv": ["false"]}, {"output": []}],
        ["nonsense", "x", {}, {"value": 1}],
        ["absent", str(file), {}, {"type": "absent"}],
    ]
    values = ask("scan", *entries)["values"]
    assert [number for number, _ in values] == [0, 1, 2, 3, 4]
    assert all("error" in found["found"] for _, found in values[:4])
    assert values[4][1]["found"] == {"type": "file"}


def test_the_kernels_values_and_this_machines_accounts() -> None:
    live = " ".join(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert seal("sysctl", "net.ipv4.ip_local_port_range")["live"] == live
    assert seal("user", "root")["uid"] == "0"
    assert seal("user", "nobody-of-that-name") == {"exists": False}
    assert seal("group", "root")["gid"] == "0"
    assert seal("mount", "/proc")["mounted"].startswith("proc ")
    assert seal("package", "dpkg")["installed"] is True
    assert seal("package", "no-such-package") == {"installed": False, "version": None, "hold": False}


def test_who_is_in_a_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Look, "table", lambda *_: [["gpu", "x", "4242", "night,day"], ["day", "x", "1", ""]])
    look = Look(SALT, "scan", [])
    assert look.group("gpu", {}) == {"exists": True, "gid": "4242", "members": ["day", "night"]}
    assert look.group("day", {})["members"] == []


def test_a_sysctl_is_compared_in_force_and_on_disk(tmp_path: Path) -> None:
    kept = tmp_path / "90.conf"
    kept.write_text("# a comment\nvm.swappiness = 10\n")
    assert seal("sysctl", "vm.swappiness", file=str(kept))["kept"] == "10"
    kept.write_text("-vm/swappiness=20\n")
    assert seal("sysctl", "vm.swappiness", file=str(kept))["kept"] == "20"
    kept.write_text("")
    assert seal("sysctl", "vm.swappiness", file=str(kept))["kept"] is None


def test_a_look_that_hangs_for_good_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "module", lambda *_: time.sleep(600))
    entries = [["hostname", "", {}, {}], ["module", "x", {}, {}], ["hostname", "", {}, {}]]
    started = time.monotonic()
    answer = probe.guarded({"mode": "seal", "salt": SALT, "entries": entries}, 0.5)
    assert json.loads(answer) == {"hangs": 1}
    assert time.monotonic() - started < 10


def test_the_node_compares_with_its_own_manifest(file: Path, tmp_path: Path) -> None:
    entry = {"kind": "file", "key": str(file), "how": {}, "want": want(file)}
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"salt": SALT, "roles": {"base": {"entries": [entry]}}}))
    program = tmp_path / "probe.py"
    program.write_text(probe_source())

    def drift() -> tuple[int, dict[str, int]]:
        done = subprocess.run(
            [sys.executable, "-ISB", str(program), str(manifest)], stdout=subprocess.PIPE, check=False
        )
        return done.returncode, json.loads(done.stdout)["drift"]

    assert drift() == (0, {"base": 0})
    file.write_text("else\n")
    assert drift() == (3, {"base": 1})


def test_what_travels_knows_nothing_of_this_package() -> None:
    source = probe_source()
    assert "infra" not in source
    assert '"""' not in source.split("\n", 8)[-1], "a node compiles it at every scan"
    assert issubclass(Look, object)


def test_keys_are_shown_by_the_fingerprint_that_ssh_keygen_prints(tmp_path: Path) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-C", "me", "-f", tmp_path / "key"], check=True
    )
    line = (tmp_path / "key.pub").read_text()
    said = subprocess.run(
        ["ssh-keygen", "-l", "-f", tmp_path / "key.pub"], check=True, text=True, stdout=subprocess.PIPE
    ).stdout
    assert shown_key(f"no-pty {line}") == f"no-pty ssh-rsa {said.split()[1]} me"
    assert shown_key("ssh-rsa AAAAB not-a-key") == "ssh-rsa AAAAB not-a-key"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"\1s\0\0\2\0\0\0ok\0", "ok"),
        (b"\1b\0\0\1\0\0\0", True),
        (b"\1t\0\0\0\0\0\0\2\1\0\0\0\0\0\0", 258),
        (b"\2as\0\x0d\0\0\0\2\0\0\0/a\0\0\1\0\0\0b\0", ["/a", "b"]),
        (b"\2as\0\0\0\0\0", []),
    ],
)
def test_systemds_answers_are_read_as_d_bus_lays_them_out(body: bytes, value: object) -> None:
    assert answer(body) == value


def test_a_unit_is_asked_for_by_its_escaped_path() -> None:
    path = b"/org/freedesktop/systemd1/unit/_31_2dx_40y_2eservice\0"
    assert path in question(1, "1-x@y.service", "Unit", "LoadState")


def test_a_name_that_is_no_text_can_be_sealed_compared_and_shown(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xffa")).touch()
    link = tmp_path / "link"
    link.symlink_to(os.fsdecode(b"/\xfe"))
    entries = [["listing", str(tmp_path), {}, {}], ["link", str(link), {}, {}]]
    found = ask("seal", *entries)["values"]
    assert found[0]["names"] == ["link", "\\xffa"]
    assert found[1]["target"] == "/\\xfe"
    for entry, value in zip(entries, found, strict=True):
        entry[3] = {name: part for name, part in value.items() if not name.startswith("_")}
    assert ask("scan", *entries)["values"] == []
