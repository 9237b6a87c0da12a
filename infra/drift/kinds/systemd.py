"""systemd's defaults for units, as it has them from all its files."""

from infra.drift.kinds.effective import program

KINDS = (
    program(
        "systemd's defaults",
        "/etc/systemd/system.conf",
        {
            "inputs": [
                "/etc/systemd/system.conf",
                "/etc/systemd/system.conf.d",
                "/usr/lib/systemd/system.conf.d",
            ],
            "argv": ["systemctl", "show"],
            "keep": ["Default"],
            "lines": True,
            "package": "systemd",
        },
    ),
)
