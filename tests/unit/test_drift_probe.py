"""The probe as it runs on a node: one bare file, started by the Python that is there, on real files."""

import hashlib
import json
import marshal
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.drift import assembly, loader, merge, probe
from infra.drift.answer import read_answer
from infra.drift.assembly import PYTHON, probe_source, script
from infra.drift.kinds import KINDS, mount, unit
from infra.drift.kinds.group import look_at_group
from infra.drift.kinds.package import at_least
from infra.drift.kinds.path import LARGE_BYTES
from infra.drift.looks import Look, shown_key
from infra.drift.manifest import Entry, Manifest, RoleManifest
from infra.drift.node import answer, question
from infra.drift.scan import known_to
from infra.files import tree_hash
from roles.base.drift.authorized_keys import look_at_authorized_keys

SALT = "5a17"


def ask(
    mode: str, *entries: list[Any], limit_s: int = 20, kept: Path | str = "", kinds: Iterable[str] = ()
) -> Any:
    """What a node would answer, by way of the script that is really sent."""
    request = {"mode": mode, "salt": SALT, "entries": list(entries), "kinds": list(kinds)}
    said = subprocess.run(
        ["sh", "-c", PYTHON],
        input=script(request, limit_s, str(kept)),
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


TELLTALE = """def serve(request, limit_s): print('{"machine": "a", "clock": 1, "values": []}')"""
SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "a bit flipped": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    "nothing": lambda _data: b"",
    "another program": lambda _data: b"none" + marshal.dumps(compile(TELLTALE, "x", "exec")),
    "no code": lambda _data: loader.checksum(b"nonsense") + b"nonsense",
}


def test_a_seal_keeps_the_compiled_probe_for_later_looks_and_a_scan_keeps_nothing(
    file: Path, tmp_path: Path
) -> None:
    kept, entry = tmp_path / "kept", ["file", str(file), {}, want(file)]
    assert ask("scan", entry, kept=kept)["values"] == []
    assert not kept.exists()
    assert ask("seal", entry, kept=kept)["values"]
    (path,) = kept.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o700
    assert ask("scan", entry, kept=kept)["values"] == []
    loader.keep(str(path), compile(TELLTALE, "x", "exec"))
    assert ask("scan", entry, kept=kept)["clock"] == 1, "what is kept answers"


def test_a_seal_of_one_role_keeps_the_probe_that_a_scan_of_all_brings(file: Path, tmp_path: Path) -> None:
    claims: list[merge.Record] = [{"kind": "file", "key": str(file), "how": {}, "reported": {}}]
    standing = Entry(kind="sysctl", key="kernel.pid_max", task="other", want={"value": "1"})
    sealed = merge.probe_request(SALT, claims, iter([standing]))
    kept, entry = tmp_path / "kept", ["file", str(file), {}, want(file)]
    ask("seal", entry, kept=kept, kinds=sealed["kinds"])
    (path,) = kept.iterdir()
    loader.keep(str(path), compile(TELLTALE, "x", "exec"))
    other = ["sysctl", "kernel.pid_max", {}, {"value": "1"}]
    assert ask("scan", entry, other, kept=kept)["clock"] == 1
    assert ask("scan", entry, kept=kept)["clock"] > 1, "another host's"


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_kept_probe_that_was_spoiled_is_not_run(
    file: Path, tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    kept, entry = tmp_path / "kept", ["file", str(file), {}, want(file)]
    ask("seal", entry, kept=kept)
    (path,) = kept.iterdir()
    path.write_bytes(spoil(path.read_bytes()))
    answer = ask("scan", entry, kept=kept)
    assert (answer["values"], answer["clock"] > 1) == ([], True)


def test_a_node_without_room_for_the_compiled_probe_does_without(file: Path) -> None:
    assert ask("seal", ["file", str(file), {}, {}], kept=file / "below")["values"]


def test_few_compiled_probes_are_kept(tmp_path: Path) -> None:
    for number in range(2 * loader.MOST):
        loader.keep(str(tmp_path / f"probe-{number}"), compile(str(number), "x", "eval"))
        os.utime(tmp_path / f"probe-{number}", (number, number))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {f"probe-{number}" for number in range(loader.MOST, 2 * loader.MOST)}


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


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_an_attribute_is_seen_and_what_is_in_it_too(file: Path, kind: str) -> None:
    path = file if kind == "file" else file.parent
    assert seal(kind, path)["attributes"] == []
    os.setxattr(path, "user.note", b"1")
    found = scan(kind, path, {"attributes": []})
    assert found is not None
    (note,) = found["found"]["attributes"]
    assert note.startswith("user.note ")
    os.setxattr(path, "user.note", b"2")
    assert scan(kind, path, {"attributes": [note]}), "its value is another one"


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


def test_what_waits_to_be_mounted_is_not_what_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = "31 1 0:9 / /m rw shared:1 - autofs systemd-1 rw,fd=63,pgrp=1,minproto=5,direct,pipe_ino=10237"
    nfs = "32 31 0:9 / /m rw,nosuid shared:2 - nfs4 10.0.0.1:/x rw,vers=4.2,hard"
    texts = {"/etc/fstab": "10.0.0.1:/x /m nfs nosuid 0 0"}
    monkeypatch.setattr(mount, "text_of", lambda path, _="": texts[path])
    for lines, mounted in ([waits], None), ([waits, nfs], "10.0.0.1:/x nfs4 hard,nosuid,rw,vers=4.2"):
        texts["/proc/self/mountinfo"] = "\n".join(lines)
        found = mount.look_at_mount(Look(SALT, "scan", []), "/m", {})
        assert found == {"fstab": texts["/etc/fstab"], "mounted": mounted}


def test_who_is_in_a_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Look, "table", lambda *_: [["gpu", "x", "4242", "night,day"], ["day", "x", "1", ""]])
    look = Look(SALT, "scan", [])
    assert look_at_group(look, "gpu", {}) == {"exists": True, "gid": "4242", "members": ["day", "night"]}
    assert look_at_group(look, "day", {})["members"] == []


def test_a_sysctl_is_compared_in_force_and_on_disk(tmp_path: Path) -> None:
    kept = tmp_path / "90.conf"
    kept.write_text("# a comment\nvm.swappiness = 10\n")
    assert seal("sysctl", "vm.swappiness", file=str(kept))["kept"] == "10"
    kept.write_text("-vm/swappiness=20\n")
    assert seal("sysctl", "vm.swappiness", file=str(kept))["kept"] == "20"
    kept.write_text("")
    assert seal("sysctl", "vm.swappiness", file=str(kept))["kept"] is None


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass for the probe: its clock stands still otherwise, however slow a look is."""
    now = 0.0

    def later(seconds: float) -> None:
        nonlocal now
        now += seconds

    clock = SimpleNamespace(**{**vars(time), "monotonic": lambda: now})
    monkeypatch.setattr(probe, "time", clock)
    return later


def test_a_look_that_hangs_for_good_is_named(
    monkeypatch: pytest.MonkeyPatch, passes: Callable[[float], None]
) -> None:
    def hangs(*_: object) -> None:
        passes(600)
        time.sleep(600)

    monkeypatch.setitem(probe.LOOKS, "module", hangs)
    entries = [["hostname", "", {}, {}], ["module", "x", {}, {}], ["hostname", "", {}, {}]]
    started = time.monotonic()
    answer = probe.guarded({"mode": "seal", "salt": SALT, "entries": entries}, 0.5)
    assert json.loads(answer) == {"hangs": 1}
    assert time.monotonic() - started < 300


def test_looks_that_are_slow_one_after_the_other_do_not_hang(
    monkeypatch: pytest.MonkeyPatch, passes: Callable[[float], None]
) -> None:
    def slow(*_: object) -> dict[str, bool]:
        time.sleep(0.2)  # the limit ends while they are at work, and is looked at anew
        passes(0.4)
        return {"loaded": True}

    monkeypatch.setitem(probe.LOOKS, "module", slow)
    entries = [["module", str(number), {}, {}] for number in range(5)]
    answer = json.loads(probe.guarded({"mode": "seal", "salt": SALT, "entries": entries}, 0.5))
    assert "hangs" not in answer


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
        (b"\1i\0\0\xfb\xff\xff\xff", -5),
        (b"\2as\0\x0d\0\0\0\2\0\0\0/a\0\0\1\0\0\0b\0", ["/a", "b"]),
        (b"\2as\0\0\0\0\0", []),
    ],
)
def test_systemds_answers_are_read_as_d_bus_lays_them_out(body: bytes, value: object) -> None:
    assert answer(body) == value


def test_a_packaged_file_is_as_its_package_brought_it_after_an_update_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit, "DPKG_INFO", f"{tmp_path}/")
    brought, path = tmp_path / "x.service", str(tmp_path / "x.service")

    def install(text: str) -> None:
        brought.write_text(text)
        (tmp_path / "x.md5sums").write_text(f"0  usr/bin/x\n{md5(text)}  {path[1:]}\n")

    def said() -> str:
        return unit.content_of(Look("", "scan", []), path, owners[path])

    install("[Unit]\n")
    owners = unit.owners_of(Look("", "seal", []), [path, "/nobody's"])
    assert owners == {path: "x.md5sums"}
    assert said() == unit.AS_PACKAGED
    install("[Unit]\n# an update\n")
    assert said() == unit.AS_PACKAGED
    (tmp_path / "x.md5sums").rename(tmp_path / "y.md5sums")
    assert said() == unit.AS_PACKAGED, "another package's by now"
    brought.write_text("[Unit]\n# an edit\n")
    assert said() != unit.AS_PACKAGED


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def test_the_probe_that_the_machine_knows_is_of_these_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = assembled_anew(tmp_path, monkeypatch)
    assert len(list(assembly.PROBES.folder.iterdir())) == 1
    monkeypatch.setattr(assembly, "_names", lambda: pytest.fail("the files are read as Python once more"))
    assembly._probe_source.cache_clear()
    assert probe_source() == whole
    monkeypatch.setattr(assembly, "tree_hash", lambda *files: tree_hash(*files) + "of a changed one")
    assembly._files_hash.cache_clear()
    assembly._probe_source.cache_clear()
    with pytest.raises(pytest.fail.Exception, match="once more"):
        probe_source()
    assembly._files_hash.cache_clear()


@pytest.mark.parametrize("before", [[], ["file"], ["unit", "check"], sorted(KINDS)])
def test_the_probe_is_the_same_whatever_was_assembled_before(
    before: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of its own: what is assembled first is kept, by the process and on the machine."""
    monkeypatch.setenv("CAUSEWAY_CACHE", str(tmp_path))
    program = (
        "import sys; from infra.drift.assembly import probe_source\n"
        "if sys.argv[1:]: probe_source(frozenset(sys.argv[1:]))\n"
        "sys.stdout.write(probe_source())"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, *before], check=True, capture_output=True, text=True
    )
    assert said.stdout == assembled_anew(tmp_path / "other", monkeypatch)


def assembled_anew(cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CAUSEWAY_CACHE", str(cache))
    assembly._names.cache_clear()
    assembly._probe_source.cache_clear()
    return probe_source()


def test_the_probe_is_the_same_for_whoever_asks_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = assembled_anew(tmp_path, monkeypatch)
    seen: set[str] = set()
    switching = sys.getswitchinterval()

    def ask(delay_s: float) -> None:
        time.sleep(delay_s)
        seen.add(probe_source())

    try:
        sys.setswitchinterval(1e-5)
        for late_s in (0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.13, 0.21):
            monkeypatch.setenv("CAUSEWAY_CACHE", str(tmp_path / str(late_s)))
            assembly._names.cache_clear()
            assembly._probe_source.cache_clear()
            with ThreadPoolExecutor() as pool:
                for number in range(3):
                    pool.submit(ask, number * late_s)
    finally:
        sys.setswitchinterval(switching)
    assert seen == {alone}


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


VERSIONS = (
    *("1:9.2p1-2+deb12u3", "1:9.2p1-2+deb12u10", "1:9.2p1-2", "9.2p1-2", "2:1.0", "0:1.0", "1.0", "1.0-0"),
    *("1.0-1", "1.0~rc1-1", "1.0~~", "1.0~", "1.0+dfsg-1~bpo12+1", "1.0.1", "1.0a", "1.0-1-1", "1.0a0", "10"),
    *("2024b-0+deb12u1", "2025b-0+deb12u2", "01.0", "1.00", "1.0-1ubuntu0.1", "1.0-1build1", "0~", "0"),
)


def as_dpkg_says(one: str, other: str) -> bool:
    return subprocess.run(["dpkg", "--compare-versions", one, "ge", other], check=False).returncode == 0


def test_versions_that_are_known_to_be_hard_compare_as_dpkg_says() -> None:
    pairs = [(one, other) for one in VERSIONS for other in VERSIONS]
    wrong = [pair for pair in pairs if at_least(*pair) != as_dpkg_says(*pair)]
    assert wrong == []


def versions() -> st.SearchStrategy[str]:
    upstream = st.from_regex(r"[0-9][0-9a-zA-Z.+~]{0,8}(-[0-9a-zA-Z.+~]{1,4})?", fullmatch=True)
    few = st.from_regex(r"[01][01aZ.+~]{0,5}(-[01a.+~]{1,3})?", fullmatch=True)  # which often begin alike
    epoch = st.sampled_from(["", "", "0:", "1:", "10:"])
    return st.builds("{}{}".format, epoch, upstream | few)


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(versions(), versions())
def test_any_two_versions_compare_as_dpkg_says(one: str, other: str) -> None:
    assert at_least(one, other) == as_dpkg_says(one, other)
    assert at_least(one, one)


@given(st.text(), st.text())
def test_no_text_stops_the_comparison(one: str, other: str) -> None:
    assert at_least(one, other) in (True, False)


@pytest.fixture
def dpkg(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has dpkg say this of package x; what the probe finds different, given what was sealed of it."""

    def differs(status: str, version: str, sealed: dict[str, Any], **how: Any) -> Any:
        text = f"Package: x\nStatus: {status}\nVersion: {version}\n\n"
        monkeypatch.setattr("infra.drift.looks.bytes_of", lambda _path: text.encode())
        found = probe.difference(Look(SALT, "scan", []), ["package", "x", how, sealed])
        return found and found["found"]

    return differs


SEALED = {"installed": True, "version": "1:9.2-3", "hold": False}
OK = "install ok installed"


def test_an_update_is_no_difference_and_a_downgrade_is(dpkg: Any) -> None:
    for version in ("1:9.2-3", "1:9.2-10", "2:0"):
        assert dpkg(OK, version, SEALED) is None
    for version in ("1:9.2-2", "9.3-1", "1:9.2-3~bpo1"):
        assert dpkg(OK, version, SEALED) == {"version": version}
    assert dpkg("deinstall ok config-files", "1:9.2-4", SEALED) == {"installed": False, "version": None}
    assert dpkg("install ok half-configured", "1:9.2-4", SEALED)["installed"] is False
    assert dpkg("install ok triggers-pending", "1:9.2-4", SEALED) is None, "an update is at work"


def test_what_is_unpacked_is_there_while_dpkg_is_at_work(
    dpkg: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    monkeypatch.setattr("infra.drift.kinds.package.LOCK", str(lock))
    script = (
        f"import fcntl, time; f = open('{lock}', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(); time.sleep(60)"
    )
    for status in ("install ok unpacked", "install ok half-configured", "install ok half-installed"):
        assert dpkg(status, "1:9.2-4", SEALED)["installed"] is False
        with subprocess.Popen([sys.executable, "-uc", script], stdout=subprocess.PIPE) as holder:
            assert holder.stdout
            holder.stdout.readline()
            try:
                assert dpkg(status, "1:9.2-4", SEALED) is None
            finally:
                holder.kill()
        assert dpkg(status, "1:9.2-4", SEALED)["installed"] is False, "it was left so"


def test_a_version_that_is_held_or_named_is_that_one_and_no_newer_one(dpkg: Any) -> None:
    held = SEALED | {"hold": True}
    assert dpkg("hold ok installed", "1:9.2-10", held) == {"version": "1:9.2-10"}
    assert dpkg(OK, "1:9.2-10", held) == {"version": "1:9.2-10", "hold": False}
    assert dpkg(OK, "1:9.2-10", SEALED, pinned=True) == {"version": "1:9.2-10"}
    assert dpkg("hold ok installed", "1:9.2-10", SEALED) == {"hold": True}, "somebody holds the newer one"
    gone = {"installed": False, "version": None, "hold": False}
    assert dpkg(OK, "1", gone) == {"installed": True, "version": "1"}


@pytest.fixture
def sshd(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A folder like /etc/ssh, and how its program is asked: one that says the same whatever the files say.

    So does `sshd -T` of what stands in a `Match` block.
    """
    (tmp_path / "sshd_config.d").mkdir()
    (tmp_path / "sshd_config.d" / "00.conf").write_text("PasswordAuthentication no\n")
    (tmp_path / "more.conf").write_text("# nothing yet\n")
    main = tmp_path / "sshd_config"
    main.write_text(
        f"Include {tmp_path}/sshd_config.d/*.conf\n\n# a comment\nUsePAM  yes\ninclude={tmp_path}/mo*\n"
    )
    inputs = [str(main), str(tmp_path / "sshd_config.d")]
    how = {"inputs": inputs, "argv": ["echo", "usepam yes"], "lines": True, "include": ["include"]}
    sealed = seal("effective", "sshd -T", **how)
    want = {"output": sealed["output"], "lines": sealed["lines"]}
    return tmp_path, {"want": want, **how, "sealed": sealed["_inputs"]}


MATCH = "Match Address 10.0.0.0/8\n  PermitRootLogin yes\n"
OPENED = (
    ("at the end of the main file", lambda folder: append(folder / "sshd_config", MATCH)),
    ("in a file beside a role's own", lambda folder: append(folder / "sshd_config.d" / "zz.conf", MATCH)),
    ("in a role's own file", lambda folder: append(folder / "sshd_config.d" / "00.conf", MATCH)),
    ("in an included file", lambda folder: append(folder / "more.conf", MATCH)),
    ("in a new file of that name", lambda folder: append(folder / "mobile", MATCH)),
    ("in a file that is included from now on", lambda folder: include_another(folder)),
    ("by the order of the lines", lambda folder: turn_around(folder / "sshd_config")),
)


def append(file: Path, text: str) -> None:
    with file.open("a") as opened:
        opened.write(text)


def include_another(folder: Path) -> None:
    (folder / "else").write_text(MATCH)
    append(folder / "more.conf", f'Include "{folder}/else"\n')


def turn_around(file: Path) -> None:
    file.write_text("\n".join(reversed(file.read_text().splitlines())))


@pytest.mark.parametrize("mode", ["scan", "thorough"])
@pytest.mark.parametrize("change", [change for _, change in OPENED], ids=[where for where, _ in OPENED])
def test_what_a_program_does_not_tell_of_itself_is_found_in_its_files(
    sshd: tuple[Path, dict[str, Any]], change: Any, mode: str
) -> None:
    folder, how = sshd
    assert scan("effective", "sshd -T", mode=mode, **how) is None
    change(folder)
    found = scan("effective", "sshd -T", mode=mode, **how)
    assert found is not None
    assert set(found["found"]) == {"lines"}


@pytest.mark.parametrize("mode", ["scan", "thorough"])
def test_a_comment_is_no_difference_and_an_older_manifest_knows_no_lines(
    sshd: tuple[Path, dict[str, Any]], mode: str
) -> None:
    folder, how = sshd
    append(folder / "sshd_config", "\n   # another\n\n")
    assert scan("effective", "sshd -T", mode=mode, **how) is None
    append(folder / "sshd_config", MATCH)
    older = {"want": {"output": how["want"]["output"]}, "sealed": how["sealed"]}
    older |= {"inputs": how["inputs"], "argv": how["argv"]}
    assert scan("effective", "sshd -T", mode=mode, **older) is None
    assert scan("effective", "sshd -T", mode=mode, **how)


class Packaged:
    """What a package ships: its version, and a file of settings as dpkg and ucf keep it."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file, self.patch = file, monkeypatch
        self.how = {"inputs": [str(file)], "argv": ["echo", "default"], "lines": True, "package": "x"}

    def update(self, version: str, text: str, *, by_ucf: bool = False) -> None:
        """The package at this version, with this text as its file."""
        md5 = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
        status = f"\n\nPackage: x\nStatus: install ok installed\nVersion: {version}\n"
        status += f"Conffiles:\n {self.file} {'0' * 32 if by_ucf else md5}\n\n"
        ucf = f"{md5 if by_ucf else '0' * 32}  {self.file}\n"
        self.file.write_text(text)
        self.patch.setattr(Look, "dpkg", lambda _: status.encode())
        self.patch.setattr("infra.drift.kinds.effective.UCF", str(self.file.with_name("ucf")))
        self.file.with_name("ucf").write_text(ucf)

    def seal(self) -> None:
        """Seal what there is."""
        sealed = probe.sealed(Look(SALT, "seal", []), ["effective", "p", self.how, {}])
        self.want = {"output": sealed["output"], "lines": sealed["lines"]}
        self.how |= {"sealed": sealed["_inputs"], "packaged": sealed["_packaged"]}

    def differs(self, mode: str) -> bool:
        """Whether a scan finds a difference."""
        return probe.difference(Look(SALT, mode, []), ["effective", "p", self.how, self.want]) is not None


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packaged:
    monkeypatch.setenv("PATH", os.environ["PATH"])  # the probe sets a node's
    return Packaged(tmp_path / "x.conf", monkeypatch)


@pytest.mark.parametrize("mode", ["scan", "thorough"])
@pytest.mark.parametrize("by_ucf", [False, True], ids=["dpkg", "ucf"])
def test_settings_that_an_update_brought_are_no_difference(
    packaged: Packaged, mode: str, by_ucf: bool
) -> None:
    packaged.update("1", "level 1\n", by_ucf=by_ucf)
    packaged.seal()
    assert packaged.differs(mode) is False
    packaged.update("2", "level 2\n", by_ucf=by_ucf)
    assert packaged.differs(mode) is False
    packaged.how["argv"] = ["echo", "another default"]
    assert packaged.differs(mode) is False, "that of the newer program"
    append(packaged.file, "level 3\n")
    assert packaged.differs(mode) is True


@pytest.mark.parametrize("mode", ["scan", "thorough"])
def test_what_a_newer_program_makes_of_the_same_lines_is_no_difference(packaged: Packaged, mode: str) -> None:
    packaged.update("1", "level 1\n")
    packaged.seal()
    packaged.update("2", "level 1\n")
    packaged.how["argv"] = ["echo", "another default"]
    append(packaged.file, "# a comment\n")
    assert packaged.differs(mode) is False, "the program had to be asked"
    append(packaged.file, "level 2\n")
    assert packaged.differs(mode) is True


@pytest.mark.parametrize("mode", ["scan", "thorough"])
def test_settings_that_were_changed_and_are_as_shipped_again_are_a_difference(
    packaged: Packaged, mode: str
) -> None:
    packaged.update("1", "open yes\n")
    packaged.file.write_text("open no\n")
    packaged.seal()
    packaged.update("2", "open yes\n")
    assert packaged.differs(mode) is True


def test_a_program_that_says_something_else_of_the_same_files_is_found_by_a_thorough_scan(
    packaged: Packaged,
) -> None:
    packaged.update("2", "level 1\n")
    packaged.seal()
    packaged.how["argv"] = ["echo", "something else"]
    assert [packaged.differs(mode) for mode in ("scan", "thorough")] == [False, True]
    packaged.update("1", "level 1\n")
    assert packaged.differs("scan") is True, "an older program is no update"


def test_what_an_update_leaves_beside_a_file_is_no_difference(tmp_path: Path) -> None:
    (tmp_path / "50x.conf").touch()
    (tmp_path / "old.dpkg-old").touch()
    names = seal("listing", tmp_path)["names"]
    assert names == ["50x.conf"]
    (tmp_path / "50x.conf.dpkg-dist").touch()
    assert scan("listing", tmp_path, {"names": names}) is None
    assert scan("listing", tmp_path, {"names": [*names, "gone.ucf-old"]}) is None, "in an older manifest"
    (tmp_path / "50x.conf.dpkg").touch()
    assert scan("listing", tmp_path, {"names": names})


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB stranger"


@pytest.fixture
def ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The keys that a look finds of the account ops, whose home is the folder `ops`."""
    home = tmp_path / "ops"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "authorized_keys").write_text(f"# comment\n{KEY} first\n")
    (tmp_path / "sshd_config").write_text("UsePAM yes\n")
    rows = [["root", "x", "0", "0", "", "/root", "/bin/sh"], ["ops", "x", "7", "7", "", str(home), "/bin/sh"]]
    monkeypatch.setattr(Look, "table", lambda *_: rows)
    how = {"inputs": [str(tmp_path / "sshd_config")], "include": ["include"]}

    def keys(want: list[str] | None = None, *key_files: Path) -> list[str]:
        known = {"authorized_keys": [str(path) for path in key_files]}
        look = Look(SALT, "scan", [["authorized_keys", "ops", how, {}]], known)
        look.want = {} if want is None else {"keys": want}
        found: list[str] = look_at_authorized_keys(look, "ops", how)["keys"]
        return [line.replace(f"{tmp_path}/", "") for line in found]

    return keys


SIGNED = shown_key(KEY)
PLACES = (
    (".ssh/authorized_keys2", "UsePAM yes", "ops/.ssh/authorized_keys2"),
    ("keys", "AuthorizedKeysFile %h/keys", "ops/keys"),
    ("more", "Match User ops\n  authorizedkeysfile=.ssh/none more", "ops/more"),
    ("../ops.7.%", 'AuthorizedKeysFile "{}/%u.%U.%%"', "ops.7.%"),
    ("principals", "AuthorizedPrincipalsFile %h/principals", "ops/principals"),
)


@pytest.mark.parametrize(("file", "setting", "shown"), PLACES, ids=[shown for *_, shown in PLACES])
def test_a_key_that_opens_an_account_is_found_wherever_sshd_looks_for_it(
    ops: Any, tmp_path: Path, file: str, setting: str, shown: str
) -> None:
    (tmp_path / "sshd_config").write_text(setting.replace("{}", str(tmp_path)))
    known = ops()
    assert known == [f"ops/.ssh/authorized_keys: {SIGNED} first"]
    (tmp_path / "ops" / file).write_text(KEY)
    assert set(ops()) - set(known) == {f"{shown}: {SIGNED}"}


def test_of_an_account_only_what_is_added_differs_and_files_with_an_entry_of_their_own_do_not_count(
    ops: Any, tmp_path: Path
) -> None:
    known = ops()
    own = tmp_path / "ops" / ".ssh" / "authorized_keys"
    assert ops(None, own) == []
    own.write_text("")
    assert ops(known) == known
    own.with_name("authorized_keys2").mkdir()
    assert ops() == [], "sshd reads no directory"
    (tmp_path / "sshd_config").write_text("AuthorizedKeysFile none\n")
    assert ops() == []


def test_a_scan_of_one_role_knows_of_the_keys_that_another_role_governs() -> None:
    def part(*keys: str, declared: bool = True) -> RoleManifest:
        entries = [
            Entry(kind=kind, key=key, task="", want={})
            for key in keys
            for kind in ("authorized_keys", "file")
        ]
        return RoleManifest(entries=entries, declared=declared)

    roles = {"base": part("root"), "more": part("/root/k"), "gone": part("/root/g", declared=False)}
    known = known_to(Manifest(host="node", roles=roles))
    keys = ["root", "/root/k"]
    assert known == {"authorized_keys": keys, "file": keys}, "what an orphaned role left is nobody's"
    assert probe.request_of({"salt": SALT}, [], known=known)["known"] == known
