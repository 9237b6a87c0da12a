"""The packages of an image as a software bill of materials: SPDX 2.3, JSON.

Nothing in it comes from a clock or from chance: the same packages give the same bytes.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

Package = Mapping[str, Any]
"""As `infra/images/node/packages.py` lists them."""
UNKNOWN = "NOASSERTION"
ROOT_ID = "SPDXRef-image"
NAMESPACE = "https://spdx.org/spdxdocs/causeway-image"


def sbom(name: str, root_sha256: str, packages: Sequence[Package], source_date: int) -> dict[str, Any]:
    """The document of one image, whose root has this checksum."""
    parts = [_package(package) for package in packages]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"causeway-image-{name}",
        "documentNamespace": f"{NAMESPACE}-{name}-{root_sha256}",
        "creationInfo": {
            "created": f"{datetime.fromtimestamp(source_date, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "creators": ["Tool: causeway"],
        },
        "packages": [_image(name, root_sha256), *parts],
        "relationships": [
            _related("SPDXRef-DOCUMENT", "DESCRIBES", ROOT_ID),
            *(_related(ROOT_ID, "CONTAINS", part["SPDXID"]) for part in parts),
        ],
    }


def _image(name: str, root_sha256: str) -> dict[str, Any]:
    return {
        "SPDXID": ROOT_ID,
        "name": f"causeway-image-{name}",
        "versionInfo": name,
        "downloadLocation": "NONE",
        "filesAnalyzed": False,
        "primaryPackagePurpose": "OPERATING-SYSTEM",
        "checksums": [{"algorithm": "SHA256", "checksumValue": root_sha256}],
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": UNKNOWN,
        "copyrightText": UNKNOWN,
    }


def _package(package: Package) -> dict[str, Any]:
    name, version, architecture = (str(package[key]) for key in ("name", "version", "architecture"))
    locator = f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?arch={architecture}"
    checksum = package["sha256"]
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{name}-{architecture}-{version}"),
        "name": name,
        "versionInfo": version,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "sourceInfo": f"built from: {package['source']}",
        **({"checksums": [{"algorithm": "SHA256", "checksumValue": checksum}]} if checksum else {}),
        "externalRefs": [
            {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}
        ],
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": UNKNOWN,
        "copyrightText": UNKNOWN,
    }


def _related(one: str, how: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}
