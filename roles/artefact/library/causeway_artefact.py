#!/usr/bin/python3
"""Ansible module: a file that is installed only with the checksum that the controller names."""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import ssl
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_artefact
short_description: Install a file by its checksum
description:
  - What came so far is kept beside the file, under a name with the checksum, and gone on with. It takes the
    file's place once it is whole and has the checksum; if it has another, it is thrown away.
  - Used by the action plugin of this name, which knows the controller's file.
options:
  dest:
    description: Where the file is.
    type: path
    required: true
  sha256:
    description: Its checksum.
    type: str
    required: true
  size:
    description: Its bytes.
    type: int
    required: true
  owner:
    description: Its owner.
    type: str
    required: true
  mode:
    description: Its mode, as octal digits.
    type: str
    required: true
  state:
    description:
      - C(looked) changes nothing. C(present) takes it from others. C(added) adds a piece that came from the
        controller, and installs when it is whole.
    type: str
    choices: [looked, present, added]
    default: present
  urls:
    description: Where others hand it on.
    type: list
    elements: str
    default: []
  mirror:
    description: Where the site keeps it, asked after those who hand it on.
    type: dict
    suboptions:
      url: {description: Its URL there, type: str, required: true}
      proxy: {description: The HTTP proxy by which it is asked; empty means none, type: str, default: ""}
      authority: {description: Who signs its certificate (PEM); empty: a public one, type: str, default: ""}
  piece:
    description: A file with the next bytes.
    type: path
  offset:
    description: Where the piece begins.
    type: int
"""
EXAMPLES = r"""
- name: Take it
  causeway_artefact:
    src: /home/me/consul
    dest: /usr/local/bin/consul
    owner: root
    mode: "0755"
    urls: [http://10.81.16.0:41234/5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03]
"""
RETURN = r"""
lacks:
  description: content, attributes, or nothing; before the module did anything.
  type: str
  returned: always
came:
  description: Bytes of it that are there so far.
  type: int
  returned: always
why:
  description: Why others did not give it.
  type: list
  returned: always
"""
CHUNK = 1 << 20
CONNECT_S, SILENT_S = 5.0, 20.0
"""A node of the same region answers at once; one that says nothing for so long is given up."""


class Artefact:
    """The file, and what has come of it."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module
        self.sha256, self.size = module.params["sha256"], module.params["size"]
        self.dest = Path(module.params["dest"])
        self.part = self.dest.with_name(f".{self.dest.name}.{self.sha256[:16]}.part")
        self.why: list[str] = []

    def came(self) -> int:
        """How much is there; what is longer than the whole is none of it."""
        size = self.part.stat().st_size if self.part.is_file() else 0
        return size if size <= self.size else 0

    def lacks(self) -> str:
        """What is to be done."""
        whole = self.dest.is_file() and self.dest.stat().st_size == self.size
        if not whole or digest(self.dest) != self.sha256:
            return "content"
        return "attributes" if self.attributes(self.dest, check=True) else ""

    def attributes(self, path: Path, check: bool) -> bool:
        """Give a file its owner and mode, or only say whether it has others."""
        asked = self.module.params
        before, self.module.check_mode = self.module.check_mode, self.module.check_mode or check
        try:
            changed = self.module.set_mode_if_different(str(path), asked["mode"], False)
            return bool(self.module.set_owner_if_different(str(path), asked["owner"], changed))
        finally:
            self.module.check_mode = before

    def add(self, piece: Path, offset: int) -> None:
        """One piece more, from the controller."""
        with self.opened(offset) as part:
            part.write(piece.read_bytes())

    def opened(self, offset: int) -> BinaryIO:
        """What has come, to be gone on with at a byte: what is beyond it was never confirmed."""
        file = os.fdopen(os.open(self.part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")
        file.truncate(offset)
        file.seek(offset)
        return file

    def take(self, url: str, proxy: str = "", authority: str = "") -> None:
        """What is not there yet. OSError or HTTPException where not all of it comes."""
        offset = self.came()
        link, path = connection(url, proxy, authority)
        try:
            link.connect()
            link.sock.settimeout(SILENT_S)
            link.request("GET", path, headers={"Range": f"bytes={offset}-"})
            answer = link.getresponse()
            if answer.status not in (200, 206):
                raise OSError(f"it answers {answer.status}")
            with self.opened(offset if answer.status == 206 else 0) as part:
                while part.tell() <= self.size and (block := answer.read(CHUNK)):
                    part.write(block)
        finally:
            link.close()
        if self.part.stat().st_size < self.size:
            raise OSError("it ended before all had come")

    def install(self, origin: str) -> bool:
        """Put it in its place where it is what was asked for; else throw it away and say so."""
        if (found := digest(self.part)) != self.sha256:
            self.part.unlink()
            self.why.append(f"{origin}: refused, its sha256 is {found} and not {self.sha256}")
            return False
        self.attributes(self.part, check=False)
        self.part.replace(self.dest)
        return True

    def taken(self, urls: list[str], mirror: dict[str, str] | None) -> bool:
        """From whoever gives it; each that fails leaves what came of it to the next."""
        mirrors = [(mirror["url"], mirror["proxy"], mirror["authority"])] if mirror else []
        for url, *way in [*((url,) for url in urls), *mirrors]:
            try:
                self.take(url, *way)
            except (OSError, http.client.HTTPException) as error:
                self.why.append(f"{url}: {error or type(error).__name__}")
            else:
                if self.install(url):
                    return True
        return False


def connection(url: str, proxy: str, authority: str) -> tuple[http.client.HTTPConnection, str]:
    """A connection that is not open yet, and the path to ask by it."""
    where = urlsplit(url)
    first = urlsplit(proxy) if proxy else where
    host = first.hostname or ""
    if where.scheme == "http":
        # A proxy is asked for the whole URL, a server for what is after its name.
        return http.client.HTTPConnection(host, first.port, timeout=CONNECT_S), url if proxy else where.path
    trusted = ssl.create_default_context(cadata=authority or None)
    port = first.port or (http.client.HTTP_PORT if proxy else None)
    link = http.client.HTTPSConnection(host, port, timeout=CONNECT_S, context=trusted)
    if proxy:
        link.set_tunnel(where.hostname or "", where.port)
    return link, where.path


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            found.update(block)
    return found.hexdigest()


def main() -> None:
    """Entry point of the module."""
    words = {name: {"type": "str", "required": True} for name in ("sha256", "owner", "mode")}
    module = AnsibleModule(
        argument_spec={
            **words,
            "dest": {"type": "path", "required": True},
            "size": {"type": "int", "required": True},
            "state": {"type": "str", "choices": ["looked", "present", "added"], "default": "present"},
            "urls": {"type": "list", "elements": "str", "default": []},
            "mirror": {
                "type": "dict",
                "options": {
                    "url": {"type": "str", "required": True},
                    "proxy": {"type": "str", "default": ""},
                    "authority": {"type": "str", "default": ""},
                },
            },
            "piece": {"type": "path"},
            "offset": {"type": "int"},
        },
        required_if=[("state", "added", ["piece", "offset"])],
        supports_check_mode=True,
    )
    asked, artefact = module.params, Artefact(module)
    lacks = "content" if asked["state"] == "added" else artefact.lacks()

    def end(changed: bool, installed: bool) -> None:
        found = {"lacks": lacks, "came": artefact.came(), "why": artefact.why, "installed": installed}
        module.exit_json(changed=changed, **found)

    if asked["state"] == "looked":
        end(False, not lacks)
    if artefact.dest.is_dir():
        module.fail_json(msg=f"{artefact.dest} is a directory: no file can be put there")
    if module.check_mode:
        end(bool(lacks), True)
    if not artefact.dest.parent.is_dir():
        module.fail_json(msg=f"{artefact.dest.parent} is not there: have the role create it before")
    if lacks == "attributes":
        end(artefact.attributes(artefact.dest, check=False), True)
    if not lacks:
        end(False, True)
    if asked["state"] == "added":
        artefact.add(Path(asked["piece"]), asked["offset"])
        installed = artefact.came() == artefact.size and artefact.install("the controller")
        end(installed, installed)
    urls = list(asked["urls"])
    random.shuffle(urls)  # nodes share those out that hand it on
    installed = artefact.taken(urls, asked["mirror"])
    end(installed, installed)


if __name__ == "__main__":
    main()
