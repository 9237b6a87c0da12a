"""How the probe looks at each kind of thing: one function a kind, aspect → value.

Travels to the node with `node.py` and `probe.py`, as one file. Python 3.8 or newer, standard library only,
and no module that is slow to import: on a clean node the start of Python is what a scan costs. Names that
begin with an underscore are not compared: `_since` (seconds since 1970), `_text` (only what every user may
read).
"""

from __future__ import annotations

import os
import stat
import sys

from infra.drift.node import ask_systemd, bytes_of, run, text_of, words_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs more than all the looking
    from collections.abc import Callable
    from typing import Any

    Found = dict[str, Any]
    How = dict[str, Any]

TEXT_LIMIT_BYTES = 65536
CHUNK_BYTES = 1 << 20
LARGE_BYTES = 4 << 20
IMMUTABLE = 0x10
FS_IOC_GETFLAGS = 0x80086601
WORLD_READABLE = 0o004
UNIT_PROPERTIES = (
    "LoadState", "ActiveState", "UnitFileState", "NeedDaemonReload", "FragmentPath", "DropInPaths",
    "StateChangeTimestamp",
)  # fmt: skip
INSTALLED = ("installed", "triggers-awaited", "triggers-pending")
"""What dpkg says of a package that is there and configured; the last two while another one is at work."""
DIGITS = "0123456789"
VERSION_END: list[Any] = [([0], 0, "")]
"""What stands, as often as needed, behind the end of a version."""
UCF = "/var/lib/ucf/hashfile"
LEFT_OVER = (".dpkg-dist", ".dpkg-new", ".dpkg-old", ".dpkg-tmp", ".ucf-dist", ".ucf-new", ".ucf-old")
"""Ends of the names of files that updates leave beside a changed one."""
SETTLED = {"reloading": "active", "refreshing": "active"}

try:
    from _sha2 import sha256  # type: ignore[import-not-found,unused-ignore] # Python 3.12 and newer
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found,unused-ignore] # older ones
    except ImportError:
        from hashlib import sha256  # the same, by way of OpenSSL: 5 ms to load


class Look:
    """One look at a node: what several entries share is read once."""

    def __init__(self, salt: str, mode: str, entries: list[Any], key_files: list[str] | None = None) -> None:
        self.salt = salt.encode()
        self.mode = mode
        self.key_files = {*(key_files or ()), *(e[1] for e in entries if e[0] == "authorized_keys")}
        self.units = [key for kind, key, _how, _want in entries if kind == "unit"]
        self.want: Found = {}
        """What was sealed of the entry that is looked at; nothing while it is sealed."""
        self.cache: dict[str, tuple[Any, Exception | None]] = {}

    def once(self, name: str, read: Callable[[], Any]) -> Any:
        """`read()`, the first time it is asked for under this name; errors are kept as well."""
        if name not in self.cache:
            try:
                self.cache[name] = (read(), None)
            except (OSError, ValueError) as problem:
                self.cache[name] = (None, problem)
        value, error = self.cache[name]
        if error is not None:
            raise error
        return value

    def digest(self, data: bytes) -> str:
        """A salted hash, so that what a short file says cannot be found by trying."""
        return str(sha256(self.salt + data).hexdigest()[:32])

    # Files

    def path(self, key: str, how: How) -> Found:
        """File, directory, link or nothing at all: type, mode, owner, group, content, immutable bit."""
        try:
            status = os.lstat(key)
        except (FileNotFoundError, NotADirectoryError):
            return {"type": "absent", "_since": self.parent_change(key)}
        found = {"mode": f"{stat.S_IMODE(status.st_mode):04o}", "_since": status.st_ctime}
        found.update(owner=self.name_of("passwd", status.st_uid), group=self.name_of("group", status.st_gid))
        if stat.S_ISLNK(status.st_mode):
            found.update(type="link", target=os.readlink(key))
        elif stat.S_ISDIR(status.st_mode):
            found.update(type="directory")
        elif stat.S_ISREG(status.st_mode):
            found.update(type="file")
            if how.get("content", True):
                found.update(self.content(key, status, how))
        else:
            found.update(type="special")
        return found

    def parent_change(self, key: str) -> float | None:
        """When the nearest directory above a missing path changed."""
        while key not in ("", "/"):
            key = os.path.dirname(key)
            if os.path.isdir(key):
                return os.stat(key).st_ctime
        return None

    def content(self, key: str, status: os.stat_result, how: How) -> Found:
        """Hash and immutable bit of a regular file; its text where that is no secret.

        A large file is read only when its size, times or place differ from those it was sealed with: nothing
        changes a file and leaves its ctime but a clock that was set back. Mode `thorough` reads it always.
        """
        whole, plain, kept = sha256(self.salt), None, b""
        large = status.st_size > LARGE_BYTES
        stamp = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        sealed = how.get("sealed") if large and self.mode == "scan" else None
        handle = os.open(key, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            flags = self.flags(handle)
            if sealed and sealed[:-1] == stamp:
                return {"digest": sealed[-1], "immutable": flags}
            if large or how.get("sha1"):
                import hashlib  # OpenSSL is six times as fast, and takes 5 ms to load

                whole = hashlib.sha256(self.salt) if large else whole
                plain = hashlib.sha1() if how.get("sha1") else None  # noqa: S324 - what Ansible reports
            while True:
                data = os.read(handle, CHUNK_BYTES)
                if not data:
                    break
                whole.update(data)
                if plain:
                    plain.update(data)
                if len(kept) <= TEXT_LIMIT_BYTES:
                    kept += data
        finally:
            os.close(handle)
        found = {"digest": whole.hexdigest()[:32], "immutable": flags}
        if large:
            found["_inputs"] = [*stamp, found["digest"]]
        if plain:
            found["_sha1"] = plain.hexdigest()
        if len(kept) <= TEXT_LIMIT_BYTES and how.get("text", True) and self.is_public(key, status):
            found["_text"] = kept
        return found

    def flags(self, handle: int) -> bool:
        """Whether the immutable bit is set; False where the file system has none."""
        import fcntl

        try:
            flags = fcntl.ioctl(handle, FS_IOC_GETFLAGS, b"\0" * 8)
        except OSError:
            return False
        return bool(int.from_bytes(flags[:4], sys.byteorder) & IMMUTABLE)

    def is_public(self, key: str, status: os.stat_result) -> bool:
        """Whether every user may read a file: its own mode, and x on all directories above."""
        if not status.st_mode & WORLD_READABLE:
            return False
        while key not in ("", "/"):
            key = os.path.dirname(key)
            if not os.stat(key).st_mode & stat.S_IXOTH:
                return False
        return True

    def table(self, name: str) -> list[list[str]]:
        """`/etc/passwd` and the like as lists of fields."""

        def read() -> list[list[str]]:
            return [line.split(":") for line in text_of("/etc/" + name).splitlines() if ":" in line]

        rows: list[list[str]] = self.once(name, read)
        return rows

    def name_of(self, table: str, number: int) -> str:
        """A user's or group's name; the number where there is none."""
        names = self.once("ids " + table, lambda: {row[2]: row[0] for row in reversed(self.table(table))})
        return str(names.get(str(number), number))

    def listing(self, key: str, how: How) -> Found:
        """The names in a directory whose meaning is the sum of its files; not those that nothing reads."""
        unread = left_over(key)
        try:
            names = {name for name in os.listdir(key) if not name.endswith(unread)}
        except FileNotFoundError:
            return {"names": None, "_since": self.parent_change(key)}
        names.update(name for name in self.want.get("names") or () if name.endswith(unread))
        return {"names": sorted(names), "_since": os.stat(key).st_ctime}

    def effective(self, key: str, how: How) -> Found:
        """What a program makes of its files; asked again only when one of the files changed.

        With `lines`, also what the files say: there is more in them than a program tells of itself, as sshd's
        `Match` blocks, and what it reads when it starts the next time.
        """
        files = self.settings(how)
        inputs = {path: self.digest(data) for path, data in files.items()}
        if how.get("package"):
            inputs[how["package"]] = self.package(how["package"], {})["version"] or ""
        if self.mode != "seal" and self.as_sealed(inputs, files, how):
            return {}
        since = max([os.stat(path).st_ctime for path in files] or [0])
        found = {"output": self.shown(run(how["argv"]), how), "_inputs": inputs, "_since": since}
        if how.get("lines"):
            lines = [f"{path}: {shown_key(line)}" for path in files for line in lines_of(files[path])]
            found["lines"] = self.shown("\n".join(lines), {})
            if found["lines"] == self.want.get("lines") and self.is_newer(inputs, how):
                return {}
        if how.get("package"):
            found["_packaged"] = [path for path in files if self.is_packaged(path, files[path])]
        return found

    def as_sealed(self, inputs: dict[str, str], files: dict[str, bytes], how: How) -> bool:
        """Whether a program's files are those that were sealed, or what updates of packages made of them."""
        if "sealed" not in how:
            return False
        sealed, package = how["sealed"], how.get("package")
        changed = [name for name in {**inputs, **sealed} if inputs.get(name) != sealed.get(name)]
        for name in changed:
            if name == package and self.is_newer(inputs, how):
                continue
            if name not in files or name not in how.get("packaged", ()):
                return False
            if not self.is_packaged(name, files[name]):
                return False
        return bool(changed) or self.mode == "scan"

    def is_newer(self, inputs: dict[str, str], how: How) -> bool:
        """Whether a program was updated since: what it makes of the same files is the update's."""
        package, sealed = how.get("package", ""), how.get("sealed") or {}
        version, before = inputs.get(package, ""), sealed.get(package, "")
        return version != before and at_least(version, before)

    def is_packaged(self, path: str, data: bytes) -> bool:
        """Whether a file of settings is as its package brought it, by what dpkg and ucf keep of it."""
        from _md5 import md5  # type: ignore[import-not-found,unused-ignore] # without OpenSSL, which loads slowly

        known = md5(data).hexdigest()
        return f"\n {path} {known}\n".encode() in self.dpkg() or f"{known}  {path}\n" in text_of(UCF, "")

    def settings(self, how: How) -> dict[str, bytes]:
        """The files at a program's inputs, and those that they name with one of the `include` keywords."""

        def read() -> dict[str, bytes]:
            files: dict[str, bytes] = {}
            todo = [path for start in how["inputs"] for path in self.below(start)]
            while todo:
                path = todo.pop(0)
                if path not in files:
                    files[path] = bytes_of(path)
                    words = [word for name in how.get("include", ()) for word in named_in(files[path], name)]
                    todo += [found for word in words for found in matching(os.path.join("/etc/ssh", word))]
            return files

        files: dict[str, bytes] = self.once("settings " + " ".join(how["inputs"]), read)
        return files

    def below(self, start: str) -> list[str]:
        """The files at or below a path."""
        if not os.path.isdir(start):
            return [start] if os.path.exists(start) else []
        names = (os.path.join(top, name) for top, _, names in os.walk(start) for name in names)
        return sorted(name for name in names if not name.endswith(LEFT_OVER))

    def shown(self, text: str, how: How) -> list[str]:
        """A command's lines; one that may carry a password is replaced by its hash."""
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        lines = [line for line in lines if not how.get("keep") or line.startswith(tuple(how["keep"]))]
        return ["hidden " + self.digest(x.encode()) if "://" in x and "@" in x else x for x in lines]

    # Packages and units

    def package(self, key: str, how: How) -> Found:
        """Installed version and hold, from dpkg's own file: quicker than starting dpkg-query.

        An update is no difference: a newer version is as sealed, unless the sealed one and no other is meant.
        """
        data = self.dpkg()
        name = key.partition(":")[0]
        at = data.find(b"\n\nPackage: " + name.encode() + b"\n")
        fields = {}
        if at >= 0:
            for line in data[at + 2 : data.find(b"\n\n", at + 2)].decode("utf-8", "replace").splitlines():
                field, colon, value = line.partition(": ")
                if colon and field in ("Status", "Version"):
                    fields[field] = value
        status = fields.get("Status", "").split()
        held = status[:1] == ["hold"]
        if not status or status[-1] not in INSTALLED:
            return {"installed": False, "version": None, "hold": held}
        version, sealed = fields.get("Version", ""), self.want.get("version") or ""
        if version != sealed and not exact_version(how, self.want) and at_least(version, sealed):
            version = sealed
        return {"installed": True, "version": version, "hold": held}

    def dpkg(self) -> bytes:
        """All that dpkg knows of packages, two empty lines before each."""
        data: bytes = self.once("dpkg", lambda: b"\n\n" + bytes_of("/var/lib/dpkg/status"))
        return data

    def unit(self, key: str, how: How) -> Found:
        """A unit's state, enablement and files; all units are asked for at once."""
        found: Found = self.once("units", self.all_units)[key]
        return found

    def all_units(self) -> dict[str, Found]:
        """Unit → what systemd says of it."""
        asked = [(unit, "Unit", name) for unit in self.units for name in UNIT_PROPERTIES]
        asked += [(unit, "Service", "Type") for unit in self.units if unit.endswith(".service")]
        said = {(unit, name): value for (unit, _, name), value in zip(asked, ask_systemd(asked))}
        units = {}
        for unit in self.units:
            active, changed = said[unit, "ActiveState"], said[unit, "StateChangeTimestamp"]
            units[unit] = {
                "active": SETTLED.get(active, active),
                "enabled": said[unit, "UnitFileState"],
                "load": said[unit, "LoadState"],
                "reload_needed": said[unit, "NeedDaemonReload"],
                "fragment": said[unit, "FragmentPath"],
                "dropins": sorted(said[unit, "DropInPaths"] or ()),
                "_type": said.get((unit, "Type"), ""),
                "_since": changed / 1e6 if changed else None,
            }
        return units

    # The kernel

    def sysctl(self, key: str, how: How) -> Found:
        """The value in force, and the one that the next boot sets from `how["file"]`."""
        path = setting_path(key)
        found: Found = {"live": words_of("/proc/sys/" + path)}
        if how.get("file"):
            kept = None
            for line in text_of(how["file"], "").splitlines():
                name, equals, value = line.partition("=")
                if equals and setting_path(name.strip().lstrip("-")) == path:
                    kept = " ".join(value.split())
            found["kept"] = kept
        return found

    def sysfs(self, key: str, how: How) -> Found:
        """A file of /sys or /proc: one setting, one value."""
        return {"value": words_of(key)}

    def check(self, key: str, how: How) -> Found:
        """What a program that a role left on the node says of settings only it can read."""
        return {"output": run(how["argv"]).splitlines()}

    def module(self, key: str, how: How) -> Found:
        """Whether a kernel module is loaded, or built in."""
        return {"loaded": os.path.isdir("/sys/module/" + key.replace("-", "_"))}

    def mount(self, key: str, how: How) -> Found:
        """What /etc/fstab says of a mount point, and what is mounted there."""
        found: Found = {"fstab": None, "mounted": None}
        for line in text_of("/etc/fstab", "").splitlines():
            fields = line.split()
            if len(fields) > 2 and not fields[0].startswith("#") and fields[1] == key.replace(" ", "\\040"):
                found["fstab"] = " ".join(fields)
        for line in self.once("mounts", lambda: text_of("/proc/self/mountinfo").splitlines()):
            fields = line.split()
            if fields[4] == key.replace(" ", "\\040"):
                tail = fields[fields.index("-") + 1 :]
                options = sorted(set(fields[5].split(",") + (tail[2].split(",") if len(tail) > 2 else [])))
                found["mounted"] = " ".join([tail[1], tail[0], ",".join(options)])
        return found

    def interface(self, key: str, how: How) -> Found:
        """MTU, administrative state and root queueing discipline of a network interface."""
        base = "/sys/class/net/" + key
        if not os.path.isdir(base):
            return {"mtu_bytes": None, "up": None, "qdisc": None}
        line = (run(["tc", "qdisc", "show", "dev", key, "root"]).splitlines() or [""])[0].split()
        return {
            "mtu_bytes": int(words_of(base + "/mtu")),
            "up": bool(int(words_of(base + "/flags"), 16) & 1),
            "qdisc": line[1] if len(line) > 1 else None,
        }

    def route(self, key: str, how: How) -> Found:
        """A route of the main table, as iproute2 prints it; without what the kernel adds by itself."""
        table = self.once("routes", lambda: run(["ip", "-N", "route", "show"]))
        for line in table.splitlines():
            if line.split(None, 1)[:1] == [key]:
                words = line.replace(" linkdown", "").replace(" dead", "").split()[1:]
                return {"route": " ".join(words)}
        return {"route": None}

    def nft(self, key: str, how: How) -> Found:
        """The rules of an nftables table (`inet filter`), without counters."""
        try:
            text = run(["nft", "--stateless", "list", "table", *key.split()])
        except ValueError as error:
            if "No such file" in str(error):
                return {"rules": None}
            raise
        return {"rules": [line.strip() for line in text.splitlines() if line.strip()]}

    # People and places

    def user(self, key: str, how: How) -> Found:
        """An account; its password as a salted hash of what /etc/shadow has."""
        row = next((row for row in self.table("passwd") if row[0] == key), None)
        if row is None:
            return {"exists": False}
        shadow = next(
            (line for line in text_of("/etc/shadow", "").splitlines() if line.startswith(key + ":")), ""
        )
        groups = sorted(r[0] for r in self.table("group") if len(r) > 3 and key in r[3].split(","))
        found = {
            "exists": True,
            "uid": row[2],
            "gid": row[3],
            "home": row[5],
            "shell": row[6],
            "groups": groups,
        }
        found["password"] = self.digest(shadow.split(":")[1].encode()) if shadow else None
        return found

    def group(self, key: str, how: How) -> Found:
        """A group and its members."""
        for row in self.table("group"):
            if row[0] == key:
                return {"exists": True, "gid": row[2], "members": sorted(filter(None, row[3].split(",")))}
        return {"exists": False}

    def authorized_keys(self, key: str, how: How) -> Found:
        """The public keys that open an account, each as its line with the fingerprint in the key's place.

        The key is a file, or an account: then all files count that sshd reads for it and that are no entry of
        their own. A key that is gone from one of these is no difference, for no task put it there.
        """
        if key.startswith("/"):
            since = os.stat(key).st_ctime if os.path.exists(key) else None
            return {"keys": sorted(self.keys_in(key)), "_since": since}
        files = self.files_of(key, how)
        keys = {f"{path}: {line}" for path in files for line in self.keys_in(path)}
        since = max((os.stat(path).st_ctime for path in files), default=None)
        return {"keys": sorted(keys.union(self.want.get("keys") or ())), "_since": since}

    def keys_in(self, path: str) -> list[str]:
        """A file's keys, or names of principals."""
        lines = [line.strip() for line in text_of(path, "").splitlines()]
        return [shown_key(line) for line in lines if line and not line.startswith("#")]

    def files_of(self, account: str, how: How) -> list[str]:
        """Where sshd looks for an account's keys: what its settings say, in whatever `Match` block."""
        named = [".ssh/authorized_keys", ".ssh/authorized_keys2"]
        for data in self.settings(how).values():
            named += named_in(data, "authorizedkeysfile") + named_in(data, "authorizedprincipalsfile")
        files: dict[str, None] = {}
        for row in self.table("passwd"):
            for pattern in named if row[0] == account else ():
                parts = pattern.split("%%")
                for sign, value in (("%h", row[5]), ("%u", account), ("%U", row[2])):
                    parts = [part.replace(sign, value) for part in parts]
                files[os.path.normpath(os.path.join(row[5], "%".join(parts)))] = None
        return [path for path in files if path not in self.key_files and os.path.isfile(path)]

    def hostname(self, key: str, how: How) -> Found:
        """The name in force and the one the next boot sets."""
        return {"live": words_of("/proc/sys/kernel/hostname"), "kept": text_of("/etc/hostname", "").strip()}

    def locale(self, key: str, how: How) -> Found:
        """Whether a locale is generated."""
        name, dot, code = key.partition(".")
        plain = name + dot + code.lower().replace("-", "")
        built = self.once("locales", self.built_locales)
        return {"available": plain in built or os.path.isdir("/usr/lib/locale/" + plain)}

    def built_locales(self) -> set[str]:
        """The names in the archive of generated locales."""
        if not os.path.exists("/usr/lib/locale/locale-archive"):
            return set()
        with open("/usr/lib/locale/locale-archive", "rb") as handle:
            head = [int.from_bytes(handle.read(4), sys.byteorder) for _ in range(8)]
            handle.seek(head[5])  # struct locarhead of glibc: offset and length of its string table
            return set(handle.read(head[6]).decode("ascii", "replace").split("\0"))


def setting_path(key: str) -> str:
    """A sysctl's path below /proc/sys: what separates first separates throughout (sysctl.d(5))."""
    return key if "/" in key.partition(".")[0] else key.translate({ord("."): "/", ord("/"): "."})


def lines_of(data: bytes) -> list[str]:
    """What a file of settings says: its lines without comments, empty ones, and space that means nothing."""
    lines = [" ".join(line.split()) for line in data.decode("utf-8", "replace").splitlines()]
    return [line for line in lines if line and line[0] not in "#;"]


def named_in(data: bytes, keyword: str) -> list[str]:
    """The words behind a keyword of sshd_config(5), wherever it stands."""
    words = []
    for line in lines_of(data):
        line = line.replace('"', "")
        if line[: len(keyword)].lower() == keyword and line[len(keyword) : len(keyword) + 1] in (" ", "="):
            words += line[len(keyword) :].lstrip(" =").split()
    return words


def matching(pattern: str) -> list[str]:
    """The files that a pattern of the shell names."""
    folder, _, name = pattern.rpartition("/")
    first, star, last = name.partition("*")
    paths = [pattern]
    if any(sign in folder + first + last for sign in "*?["):
        from glob import glob  # slow to load, and for the patterns that are in use not needed

        paths = glob(pattern)
    elif star:
        names = os.listdir(folder) if os.path.isdir(folder) else []
        paths = [f"{folder}/{x}" for x in names if x.startswith(first) and x.endswith(last) and x[0] != "."]
    return sorted(path for path in paths if os.path.isfile(path))


def left_over(folder: str) -> tuple[str, ...]:
    """Ends of names that what reads a directory passes over; not every cron does."""
    return () if folder == "/etc/cron.d" else LEFT_OVER


def shown_key(line: str) -> str:
    """A line of authorised keys with the key as its fingerprint, as `ssh-keygen -l` prints it."""
    import binascii

    words = line.split()
    for number, word in enumerate(words):
        try:
            raw = binascii.a2b_base64(word + "===") if word.startswith("AAAA") else b""
        except ValueError:
            raw = b""  # no key: sshd passes over the line
        if raw:
            digest = binascii.b2a_base64(sha256(raw).digest(), newline=False).decode()
            words[number] = "SHA256:" + digest.rstrip("=")
    return " ".join(words)


def exact_version(how: How, want: Found) -> bool:
    """Whether a package has to have the version that was sealed: a task names it, or it is held."""
    return bool(how.get("pinned") or want.get("hold"))


def at_least(version: str, sealed: str) -> bool:
    """Whether a package's version is the sealed one or newer, as dpkg compares them (deb-version(7))."""
    if not version or not sealed:
        return False
    for ours, theirs in zip(version_parts(version), version_parts(sealed)):
        missing = len(theirs) - len(ours)
        ours, theirs = ours + VERSION_END * missing, theirs + VERSION_END * -missing
        if ours != theirs:
            return ours > theirs
    return True


def version_parts(version: str) -> list[list[Any]]:
    """Epoch, upstream version and revision, each in pieces of letters and a number."""
    epoch, colon, rest = version.partition(":")
    upstream, dash, revision = (rest if colon else version).rpartition("-")
    parts = (epoch if colon else "", upstream if dash else revision, revision if dash else "")
    return [pieces(part) for part in parts]


def pieces(text: str) -> list[Any]:
    """Letters and the number behind them, again and again, so that lists compare as dpkg does.

    `~` is less than the end, the end less than a letter, a letter less than anything else.
    """
    found: list[Any] = []
    while text:
        at = next((at for at, letter in enumerate(text) if letter in DIGITS), len(text))
        order = [-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in text[:at]]
        rest = text[at:].lstrip(DIGITS)
        number = text[at : len(text) - len(rest)].lstrip("0")
        found.append(([*order, 0], len(number), number))
        text = rest
    return found


KINDS = {
    "file": Look.path, "directory": Look.path, "link": Look.path, "absent": Look.path,
    "listing": Look.listing, "effective": Look.effective, "package": Look.package, "unit": Look.unit,
    "sysctl": Look.sysctl, "sysfs": Look.sysfs, "module": Look.module, "mount": Look.mount,
    "interface": Look.interface, "route": Look.route, "nft": Look.nft, "user": Look.user,
    "group": Look.group, "authorized_keys": Look.authorized_keys, "hostname": Look.hostname,
    "locale": Look.locale, "check": Look.check,
}  # fmt: skip
