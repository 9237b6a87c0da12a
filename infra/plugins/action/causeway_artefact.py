"""Action plugin: a large file of the controller's, by its checksum, from another node or from here."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:  # plain `ansible-playbook` knows this file's folder, not the checkout
    sys.path.append(str(ROOT))

from infra.files import content_hash  # noqa: E402 - needs the path set above

DOCUMENTATION = """
module: causeway_artefact
short_description: Install a large file of the controller's
description:
  - Takes it from other nodes where they hand it on, then from the site's mirror, and sends it from the
    controller where nobody else has it.
  - Either goes on where an earlier attempt ended.
  - What has another checksum than the controller's file is refused.
options:
  src: {description: The file on the controller, type: path, required: true}
  dest: {description: The file on the node, type: path, required: true}
  owner: {description: Its owner, type: str, default: root}
  mode: {description: Its mode, type: str, required: true}
  urls: {description: Where other nodes hand it on, type: list, elements: str, default: []}
  mirror: {description: "The site's mirror: url, proxy, and ca_file, a file on the controller", type: dict}
  look: {description: Only say whether the node has it, type: bool, default: false}
"""
PIECE = 16 << 20
"""Bytes sent at once: what is lost where a connection breaks, and a round trip or two each."""


class ActionModule(ActionBase):  # type: ignore[misc] # ansible has no types
    """Asks the module of this name, and sends what it lacks."""

    TRANSFERS_FILES = True
    _VALID_ARGS = frozenset(("src", "dest", "owner", "mode", "urls", "mirror", "look"))

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the module says, and `sent`: bytes that came from the controller."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        given = self._task.args
        source = Path(given.get("src") or "")
        if not source.is_file():
            raise AnsibleActionFail(f"{source} is no file of the controller's")
        size, sha256 = source.stat().st_size, content_hash(source)
        asked = {"dest": given["dest"], "owner": given.get("owner", "root"), "mode": given["mode"]}
        asked |= {"sha256": sha256, "size": size}
        if given.get("look"):
            found = self._ask({**asked, "state": "looked"}, task_vars)
            names = ("ansible_host", "causeway_region")  # which may be templates
            where = {name: self._templar.template((task_vars or {}).get(name, "")) for name in names}
            return result | found | _place(where, asked)
        others = {"urls": given.get("urls") or []} | _mirror(given.get("mirror") or {}, sha256)
        found = self._ask(asked | others, task_vars)
        sent = 0
        if not found.get("failed") and not found["installed"]:
            said = found["why"]
            if said:
                result["warnings"] = [f"it comes from the controller: {line}" for line in said]
            found, sent = self._send(source, asked, found["came"], task_vars)
            found["why"] = [*said, *found.get("why", [])]
        return result | found | {"sent": sent}

    def _ask(self, asked: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._execute_module("causeway_artefact", dict(asked), task_vars=task_vars)
        return found

    def _send(
        self, source: Path, asked: Mapping[str, Any], offset: int, task_vars: Any
    ) -> tuple[dict[str, Any], int]:
        """From a byte on, piece by piece, each confirmed: the next attempt goes on after the last of them.

        What came before may be another's, and wrong: then once more, from the first byte.
        """
        found, sent = self._pieces(source, asked, offset, task_vars)
        if not found.get("failed") and not found["installed"] and offset:
            found, more = self._pieces(source, asked, 0, task_vars)
            sent += more
        if not found.get("failed") and not found["installed"]:
            raise AnsibleActionFail(f"{asked['dest']} is not installed: {'; '.join(found['why'])}")
        return found, sent

    def _pieces(
        self, source: Path, asked: Mapping[str, Any], offset: int, task_vars: Any
    ) -> tuple[dict[str, Any], int]:
        """What the module says to the last piece, and how many bytes went."""
        folder = self._connection._shell.tmpdir or self._make_tmp_path()
        remote, sent = self._connection._shell.join_path(folder, "piece"), 0
        found: dict[str, Any] = {}
        with source.open("rb") as file, tempfile.NamedTemporaryFile() as piece:
            file.seek(offset)
            while True:
                block = file.read(PIECE)
                piece.seek(0)
                piece.truncate()
                piece.write(block)
                piece.flush()
                self._transfer_file(piece.name, remote)
                self._fixup_perms2((folder, remote))
                more = {"state": "added", "piece": remote, "offset": offset}
                found = self._ask({**asked, **more}, task_vars)
                offset, sent = offset + len(block), sent + len(block)
                if found.get("failed") or offset >= asked["size"]:
                    return found, sent
                if not block:
                    raise AnsibleActionFail(f"{source} has become shorter while it was sent: run again")


def _mirror(given: Mapping[str, str], sha256: str) -> dict[str, Any]:
    """How the module asks the mirror: there a file's name is its checksum, so none can be the wrong one."""
    if not given.get("url"):
        return {}
    authority = Path(given["ca_file"]).read_text() if given.get("ca_file") else ""
    url = f"{given['url'].rstrip('/')}/{sha256}"
    return {"mirror": {"url": url, "proxy": given.get("proxy") or "", "authority": authority}}


def _place(where: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What decides who hands it on to whom. Only an address that others can use is one."""
    address = str(where["ansible_host"])
    try:
        known = ip_address(address)
    except ValueError:
        address = ""
    else:
        address = "" if known.is_loopback else address
    among = f"{where['causeway_region']} {asked['dest']} {asked['sha256']}"
    return {"among": among, "address": address, "sha256": asked["sha256"]}
