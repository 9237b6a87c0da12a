"""Reading files and asking programs on a node, without modules that are slow to import. See `looks.py`."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SYSTEMD = "/run/systemd/private"
"""systemd's own socket, for root: what `systemctl` talks to, which takes 17 ms of a node for four units."""
BUS_LIMIT_S = 15
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
AT_ONCE_BYTES = 1 << 16
"""So much of a file is read at a time: all of most."""


def bytes_of(path: str) -> bytes:
    """A file's content; a small one's without a file object, which costs more than the reading."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = more = os.read(handle, AT_ONCE_BYTES)
        while more and len(data) < AT_ONCE_BYTES:  # the kernel tells of itself in pieces
            more = os.read(handle, AT_ONCE_BYTES)
            data += more
    finally:
        os.close(handle)
    if more:
        with open(path, "rb") as large:
            return large.read()
    return data


def text_of(path: str, missing: str | None = None) -> str:
    """A file's text; `missing` where it is not there, if that is given."""
    try:
        return bytes_of(path).decode("utf-8", "replace")
    except FileNotFoundError:
        if missing is None:
            raise
        return missing


def words_of(path: str) -> str:
    """A file's words, single spaces between them."""
    return " ".join(text_of(path).split())


def run(argv: list[str], limit_s: float = 0) -> str:
    """A command's output. ValueError with what it said when it fails; `subprocess` is slow to import.

    With a limit, TimeoutError where it has not ended by then: it is killed, with all that it started; and
    ValueError where there is no such program, which is FileNotFoundError otherwise.
    """
    reader, writer = os.pipe()
    named = (f"{folder}/{argv[0]}" for folder in PATH.split(":") if "/" not in argv[0])
    program = next((path for path in named if os.access(path, os.X_OK)), argv[0])
    actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)]
    environment = {"PATH": PATH, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"}
    until = time.monotonic() + limit_s
    try:
        pid = os.posix_spawn(program, argv, environment, file_actions=actions, setpgroup=0)
        os.close(writer)
        writer = -1
        said = said_until(reader, until if limit_s else 0).decode("utf-8", "replace")
        status = ended_until(pid, until) if limit_s else os.waitpid(pid, 0)[1]
    except TimeoutError:
        os.killpg(pid, 9)
        raise TimeoutError(f"{' '.join(argv)} gives no answer within {limit_s:g} s") from None
    except FileNotFoundError:
        if not limit_s:
            raise
        raise ValueError(f"{argv[0]} is not there") from None
    finally:
        for handle in (reader, writer):
            if handle >= 0:
                os.close(handle)
    if status:
        raise ValueError(f"{' '.join(argv)} fails: {said.strip()[-300:] or 'it said nothing'}")
    return said


def said_until(reader: int, until: float) -> bytes:
    """All that comes out of a pipe. TimeoutError where its end has not come by UNTIL, if that is not 0."""
    from select import POLLIN, poll

    waiting = poll()
    parts: list[bytes] = []
    waiting.register(reader, POLLIN)
    while True:
        left_s = until - time.monotonic()
        if until and (left_s <= 0 or not waiting.poll(left_s * 1000)):
            raise TimeoutError
        part = os.read(reader, AT_ONCE_BYTES)
        if not part:
            return b"".join(parts)
        parts.append(part)


def ended_until(pid: int, until: float) -> int:
    """A process's exit status. TimeoutError where it lives on, also with nothing more to say."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.002)


def ask_systemd(questions: list[tuple[str, str, str]]) -> list[Any]:
    """Properties of units, as `(unit, "Unit" or "Service", name)`, and of systemd itself, as
    `("", "Manager", name)`; None for what systemd does not know.

    OSError when systemd does not answer. The wire format is that of the D-Bus specification.
    """
    from _socket import AF_UNIX, SOCK_STREAM, socket  # without the module around it, which loads slowly

    bus = socket(AF_UNIX, SOCK_STREAM)
    bus.settimeout(BUS_LIMIT_S)
    try:
        bus.connect(SYSTEMD)
        bus.sendall(b"\0AUTH EXTERNAL %s\r\nBEGIN\r\n" % str(os.getuid()).encode().hex().encode())
        got = b""
        while b"\r\n" not in got:
            got += heard(bus)
        bus.sendall(b"".join(question(n + 1, *asked) for n, asked in enumerate(questions)))
        got = got.partition(b"\r\n")[2]
        answers: list[Any] = []
        while len(answers) < len(questions):
            while len(got) < 16 or len(got) < message_bytes(got):
                got += heard(bus)
            size = message_bytes(got)
            if got[1] in (2, 3):  # an answer or an error, in the order of the questions; 4 is a signal
                answers.append(answer(got[size - number(got, 4) : size]) if got[1] == 2 else None)
            got = got[size:]
        return answers
    finally:
        bus.close()


def heard(bus: Any) -> bytes:
    """What has arrived on a socket."""
    data: bytes = bus.recv(65536)
    if not data:
        raise OSError("systemd has hung up")
    return data


def number(data: bytes, at: int) -> int:
    """The four-byte number that stands there."""
    return int.from_bytes(data[at : at + 4], "little")


def message_bytes(data: bytes) -> int:
    """The length of the D-Bus message that begins here: head, its fields up to a multiple of 8, body."""
    return 16 + (number(data, 12) + 7) // 8 * 8 + number(data, 4)


def question(serial: int, unit: str, interface: str, name: str) -> bytes:
    """A call of `org.freedesktop.DBus.Properties.Get`."""
    letters = [chr(x) if x < 128 and chr(x).isalnum() else f"_{x:02x}" for x in unit.encode()]
    if unit[:1].isdigit():
        letters[0] = f"_{ord(letters[0]):02x}"
    path = "/org/freedesktop/systemd1" + ("/unit/" + "".join(letters) if unit else "")
    fields = b""
    for code, kind, value in (
        (1, b"o", path),
        (2, b"s", "org.freedesktop.DBus.Properties"),
        (3, b"s", "Get"),
        (8, b"g", "ss"),
    ):
        text = value.encode() + b"\0"
        size = (len(text) - 1).to_bytes(1 if kind == b"g" else 4, "little")
        fields = padded(fields, 8) + bytes([code, 1]) + kind + b"\0" + size + text
    body = b""
    for word in ("org.freedesktop.systemd1." + interface, name):
        body = padded(body, 4) + len(word).to_bytes(4, "little") + word.encode() + b"\0"
    sizes = [size.to_bytes(4, "little") for size in (len(body), serial, len(fields))]
    return padded(b"l\1\0\1" + b"".join(sizes) + fields, 8) + body


def padded(data: bytes, step: int) -> bytes:
    """Zeros behind it, up to a multiple of `step` bytes."""
    return data + bytes(-len(data) % step)


def answer(body: bytes) -> Any:
    """The value of a variant: text, truth value, number of 64 bits or signed one of 32, list of texts."""
    kind, at = body[1 : 1 + body[0]], body[0] + 2
    at += -at % (8 if kind == b"t" else 4)
    if kind == b"t":
        return int.from_bytes(body[at : at + 8], "little")
    if kind == b"i":
        return int.from_bytes(body[at : at + 4], "little", signed=True)
    if kind == b"b":
        return bool(number(body, at))
    if kind == b"s":
        return body[at + 4 : at + 4 + number(body, at)].decode("utf-8", "replace")
    if kind != b"as":
        raise ValueError(f"systemd answered with a value of type {kind!r}")
    texts, end, at = [], at + 4 + number(body, at), at + 4
    while at < end:
        texts.append(body[at + 4 : at + 4 + number(body, at)].decode("utf-8", "replace"))
        at += 5 + number(body, at)
        at += -at % 4
    return texts
