#!/usr/bin/python3
"""Ansible module: has sshd read its files again, and undoes that unless somebody comes back in time."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: causeway_sshd_trial
short_description: Have sshd read its files again, on trial
description:
  - C(tried) starts a timer on the node, then reloads sshd. C(kept), over a new connection, stops the timer
    and keeps a copy of the files by which it was let in.
  - Where nobody comes back, because of these files or of somebody's that nobody had had read until now, the
    node puts the last files back that let somebody in, and has sshd read them. Without such a copy the role's
    own file goes. What is taken away lies in C(/var/lib/causeway/aside) then.
options:
  state:
    description: Which of both.
    type: str
    choices: [tried, kept]
    required: true
  trial_s:
    description: Seconds until the node undoes it; used by C(tried).
    type: int
    default: 300
"""
EXAMPLES = r"""
- name: Have sshd read its files again
  causeway_sshd_trial:
    state: tried
"""
RETURN = r"""
governs:
  description: That sshd runs, for the record of the converge.
  type: list
  returned: always
"""
UNIT = "causeway-sshd-undo"
SSH = Path("/etc/ssh")
READ = ("sshd_config", "sshd_config.d")
"""What sshd reads there."""
OURS = SSH / "sshd_config.d/00-causeway.conf"
GOOD = Path("/var/lib/causeway/sshd")
ASIDE = Path("/var/lib/causeway/aside")
SCRIPT = Path("/run/causeway-sshd-undo")
UNDO = """
umask 077
aside="$1/sshd-$(date +%Y%m%dT%H%M%S)" && mkdir -p "$aside" && cp -a /etc/ssh/sshd_config* "$aside"
if [ -e "$2/sshd_config" ]; then
  for file in /etc/ssh/sshd_config.d/*; do [ -e "$2/sshd_config.d/${file##*/}" ] || rm -f "$file"; done
  cp -a "$2"/* /etc/ssh/
else
  rm -f "$3"
fi
/usr/sbin/sshd -t && systemctl reload-or-restart ssh.service
echo "nobody came back: the files of sshd are those that let somebody in before; what there was is in $aside"
"""


class Trial:
    """Both halves, by systemd's own tools."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module = module

    def run(self, *argv: str, may_fail: bool = False) -> str:
        """What a command printed; the module fails where the command does."""
        status, said, complaint = self.module.run_command(list(argv))
        if status and not may_fail:
            self.module.fail_json(msg=f"{shlex.join(argv[:3])}: {(complaint or said).strip()}")
        return str(said).strip()

    def begin(self, trial_s: int) -> None:
        """Start the timer, then reload."""
        self.run("systemctl", "stop", f"{UNIT}.timer", f"{UNIT}.service", may_fail=True)
        self.run("systemctl", "reset-failed", f"{UNIT}.service", may_fail=True)
        timer = ("systemd-run", "--quiet", "--collect", f"--unit={UNIT}", f"--on-active={trial_s}")
        SCRIPT.write_text(UNDO)
        places = map(str, (ASIDE, GOOD, OURS))
        self.run(*timer, "--timer-property=AccuracySec=1", "/bin/sh", "-e", str(SCRIPT), *places)
        self.run("systemctl", "reload-or-restart", "ssh.service")

    def end(self) -> None:
        """Stop the timer, and keep what let this connection in."""
        if self.run("systemctl", "is-active", f"{UNIT}.timer", may_fail=True) != "active":
            self.module.fail_json(
                msg="came back too late: the node has sshd's files as they were before this run "
                f"(journalctl --unit {UNIT}); base_sshd_trial_s is how long it waits"
            )
        self.run("systemctl", "stop", f"{UNIT}.timer")
        new, old = (GOOD.with_name(f"{GOOD.name}.{part}") for part in ("new", "old"))
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        new.mkdir(parents=True, mode=0o700)
        for name in READ:
            source = SSH / name
            if source.is_dir():
                shutil.copytree(source, new / name, symlinks=True)
            elif source.exists():
                shutil.copy2(source, new / name, follow_symlinks=False)
        if GOOD.exists():
            GOOD.rename(old)
        new.rename(GOOD)
        shutil.rmtree(old, ignore_errors=True)


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["tried", "kept"], "required": True},
            "trial_s": {"type": "int", "default": 300},
        },
        supports_check_mode=True,
    )
    tried = module.params["state"] == "tried"
    try:
        if not module.check_mode:
            trial = Trial(module)
            if tried:
                trial.begin(module.params["trial_s"])
            else:
                trial.end()
    except OSError as error:
        module.fail_json(msg=f"the files by which we got in cannot be kept: {error}")
    module.exit_json(changed=tried, governs=[{"kind": "unit", "key": "ssh.service"}])


if __name__ == "__main__":
    main()
