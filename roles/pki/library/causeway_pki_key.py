#!/usr/bin/python3
"""Ansible module: a private key that never leaves its node, and the request for a certificate."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_pki_key
short_description: Make a node's private key and a certificate request
description:
  - Makes an EC key (P-256) where there is none, or something else in its place. Returns a certificate request
    signed by it, and the certificate that the node has already.
options:
  path:
    description: Where the key is.
    type: path
    required: true
  certificate:
    description: Where the certificate is, or will be.
    type: path
    required: true
  owner:
    description: The user whom the key belongs to.
    type: str
    required: true
  group:
    description: The group that the key belongs to.
    type: str
    required: true
  mode:
    description: The key's mode, as octal digits.
    type: str
    required: true
"""
EXAMPLES = r"""
- name: Make the key
  causeway_pki_key:
    path: /etc/consul.d/agent-key.pem
    certificate: /etc/consul.d/agent.pem
    owner: root
    group: consul
    mode: "0640"
"""
RETURN = r"""
node:
  description: request and certificate, both PEM; an empty request in check mode where there is no key yet.
  type: dict
  returned: always
governs:
  description: The key.
  type: list
  returned: always
"""
CURVE = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")


def make(module: AnsibleModule, key: Path) -> None:
    """Make a key: whole or not at all, and at no moment for anybody else to read."""
    part = key.with_name(f".{key.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    try:
        module.run_command(["openssl", "genpkey", *CURVE, "-out", str(part)], check_rc=True)
        part.replace(key)
    finally:
        part.unlink(missing_ok=True)


def request_of(module: AnsibleModule, key: Path) -> str:
    """A certificate request signed by the key; empty where there is none, or one that cannot be read."""
    command = ["openssl", "req", "-new", "-key", str(key), "-subj", "/CN=node"]
    status, out, _ = module.run_command(command) if key.is_file() else (1, "", "")
    return "" if status else str(out)


def main() -> None:
    """Entry point of the module."""
    words = {name: {"type": "str", "required": True} for name in ("owner", "group", "mode")}
    paths = {name: {"type": "path", "required": True} for name in ("path", "certificate")}
    module = AnsibleModule(argument_spec={**paths, **words}, supports_check_mode=True)
    key, certificate = Path(module.params["path"]), Path(module.params["certificate"])
    request = request_of(module, key)
    changed = not request
    if changed and key.is_dir():
        module.fail_json(msg=f"{key} is a directory: no key can be made there")
    if changed and not module.check_mode and not key.parent.is_dir():
        module.fail_json(msg=f"{key.parent} is not there: have the role that includes pki create it before")
    if changed and not module.check_mode:
        make(module, key)
        request = request_of(module, key)
    if key.exists():
        changed = module.set_mode_if_different(str(key), module.params["mode"], changed)
        changed = module.set_owner_if_different(str(key), module.params["owner"], changed)
        changed = module.set_group_if_different(str(key), module.params["group"], changed)
    held = certificate.read_text(errors="replace") if certificate.is_file() else ""
    governs = [{"kind": "file", "key": str(key), "how": {"generated": True}}]
    module.exit_json(changed=changed, node={"request": request, "certificate": held}, governs=governs)


if __name__ == "__main__":
    main()
