"""A region's mirrors, as the builder of an image is told of them: they send packages, and leave no trace."""

from typing import Any
from urllib.parse import urlsplit

from infra.capabilities.base.section import BaseSection
from infra.files import given_file
from infra.ground.contract import Contract
from infra.providers.local.image import ARCHIVE, SECURITY

AUTHORITY = "/usr/lib/causeway-builder/mirrors.pem"
"""In the builder; see `mirror.py` there."""


def asked(contract: Contract, pool: str) -> dict[str, Any]:
    """What `mirror.py` reads in the builder of a pool's image; {} where packages come from the archive."""
    mirrors = contract.need(BaseSection).regions[contract.pools[pool].region].mirrors
    if mirrors is None or not (mirrors.packages or mirrors.proxy):
        return {}
    archives = dict[str, str]()
    if mirrors.packages:
        packages = mirrors.packages.rstrip("/")
        archives = {ARCHIVE: packages, SECURITY: (mirrors.security or f"{packages}-security").rstrip("/")}
    conf = [f'Acquire::{kind}::Proxy "{mirrors.proxy}";' for kind in ("http", "https") if mirrors.proxy]
    if mirrors.ca_file:
        split = (urlsplit(url) for url in archives.values())
        hosts = sorted({str(url.hostname) for url in split if url.scheme == "https"})
        conf += [f'Acquire::https::{host}::CaInfo "{AUTHORITY}";' for host in hosts]
    authority = given_file(mirrors.ca_file).read_text() if mirrors.ca_file else ""
    return {"archives": archives, "conf": "".join(f"{line}\n" for line in conf), "authority": authority}
