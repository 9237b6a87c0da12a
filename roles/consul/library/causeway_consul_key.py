#!/usr/bin/python3
"""Ansible module: a node's private key, which never leaves it, and the request for a certificate."""

from __future__ import annotations

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_consul_key
short_description: Make a node's private key and a certificate request
description:
  - Makes an EC key (P-256) where there is none. Returns a certificate request signed by it, and the
    certificate that the node has already.
options:
  path:
    description: Where the key is.
    type: path
    required: true
  certificate:
    description: Where the certificate is, or will be.
    type: path
    required: true
  group:
    description: The group that may read the key.
    type: str
    required: true
"""
EXAMPLES = r"""
- name: Make the key
  causeway_consul_key:
    path: /etc/consul.d/agent-key.pem
    certificate: /etc/consul.d/agent.pem
    group: consul
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


def openssl(module: AnsibleModule, *words: str) -> str:
    """What openssl prints."""
    _, out, _ = module.run_command(["openssl", *words], check_rc=True)
    return str(out)


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "certificate": {"type": "path", "required": True},
            "group": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    key, certificate = Path(module.params["path"]), Path(module.params["certificate"])
    changed = not key.exists()
    if changed and not module.check_mode:
        key.touch(mode=0o600)
        curve = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")
        try:
            openssl(module, "genpkey", *curve, "-out", str(key))
        finally:
            if key.stat().st_size == 0:
                key.unlink()
    if key.exists():
        changed = module.set_mode_if_different(str(key), "0640", changed)
        changed = module.set_owner_if_different(str(key), "root", changed)
        changed = module.set_group_if_different(str(key), module.params["group"], changed)
    request = openssl(module, "req", "-new", "-key", str(key), "-subj", "/CN=node") if key.exists() else ""
    module.exit_json(
        changed=changed,
        node={"request": request, "certificate": certificate.read_text() if certificate.exists() else ""},
        governs=[{"kind": "file", "key": str(key)}],
    )


if __name__ == "__main__":
    main()
