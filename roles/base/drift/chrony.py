"""chrony's settings, as it has them from all its files."""

from infra.drift.kinds.effective import program

KINDS = (
    program(
        "chronyd -p",
        "/etc/chrony/",
        {
            "inputs": ["/etc/chrony/chrony.conf", "/etc/chrony/conf.d", "/etc/chrony/sources.d"],
            "argv": ["chronyd", "-p", "-f", "/etc/chrony/chrony.conf"],
            "package": "chrony",
        },
    ),
)
