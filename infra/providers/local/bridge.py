"""Podman's own bridge, on which images are baked and scenarios run; as a program it keeps its address."""

from pathlib import Path

from infra.process import run

NAME = "podman0"
OWN = "3"
"""In `addr_assign_type`: set by somebody (NET_ADDR_SET, ABI/testing/sysfs-class-net of Linux)."""


def keep_address(links: Path = Path("/sys/class/net")) -> None:
    """Make the address that the bridge has its own, once a container is on it.

    A bridge without one takes its lowest port's, which goes with a container: the other containers then
    answer to an address that nobody has, until they ask for it anew: for six seconds where it was measured.
    """
    link = links / NAME
    if not link.is_dir():  # nothing runs there, or it is an unprivileged user's, in a namespace
        return
    if (link / "addr_assign_type").read_text().strip() != OWN:
        run(["ip", "link", "set", "dev", NAME, "address", (link / "address").read_text().strip()])


if __name__ == "__main__":
    keep_address()
