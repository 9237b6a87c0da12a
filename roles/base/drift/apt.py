"""apt's settings, as it has them from all its files."""

from infra.drift.kinds.effective import program

KINDS = (
    program(
        "apt-config dump",
        "/etc/apt/apt.conf",
        {
            "inputs": ["/etc/apt/apt.conf", "/etc/apt/apt.conf.d"],
            "argv": ["apt-config", "dump"],
            "package": "apt",
        },
        folders=(r"/etc/apt/(apt\.conf|preferences|sources\.list)\.d",),
    ),
)
