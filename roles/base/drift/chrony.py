"""chrony's settings, as it has them from all its files."""

from infra.drift.kinds.effective import program

CHRONY_FILES = ["/etc/chrony/chrony.conf", "/etc/chrony/conf.d", "/etc/chrony/sources.d"]
KINDS = (
    program(
        "chronyd -p",
        "/etc/chrony/",
        {
            "inputs": CHRONY_FILES,
            "argv": ["chronyd", "-p", "-f", "/etc/chrony/chrony.conf"],
            "package": "chrony",
        },
    ),
)
