"""The list of what an image holds, as SPDX 2.3 JSON (https://spdx.github.io/spdx-spec/v2.3).

Everything in it comes from the locks and from the packages' own metadata. Licences are what a
package declares; where that is no SPDX expression, NOASSERTION, with its own words as a comment.
"""

import email
import re
import uuid
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ci.image.locked import ImageError
from slime.doctor.lock_file import Locked

_CREATED = "1980-01-01T00:00:00Z"
_UNKNOWN = "NOASSERTION"
_ROOT = "SPDXRef-Image"
# What the two common ways to say it mean, where that is beyond doubt ("BSD" is three licences).
_SPDX_IDS = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "apache-2.0 license": "Apache-2.0",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mit": "MIT",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "the unlicense (unlicense)": "Unlicense",
}
_OSI = "License :: OSI Approved :: "


def document(
    digest: str, title: str, wheels: dict[Locked, Path], debs: dict[Locked, Path]
) -> dict[str, Any]:
    """The document for the image with this manifest digest (`sha256:...`)."""
    packages = [_wheel_package(locked, path) for locked, path in wheels.items()]
    packages += [_deb_package(locked) for locked in debs]
    image = _package(_ROOT, title, digest.removeprefix("sha256:")) | {
        "primaryPackagePurpose": "CONTAINER"
    }
    contained = [
        {
            "spdxElementId": _ROOT,
            "relationshipType": "CONTAINS",
            "relatedSpdxElement": package["SPDXID"],
        }
        for package in packages
    ]
    describes = {
        "spdxElementId": "SPDXRef-DOCUMENT",
        "relationshipType": "DESCRIBES",
        "relatedSpdxElement": _ROOT,
    }
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": title,
        "documentNamespace": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "creationInfo": {"created": _CREATED, "creators": ["Tool: slime-ci-image"]},
        "packages": [image, *packages],
        "relationships": [describes, *contained],
    }


def _package(identifier: str, name: str, sha256: str) -> dict[str, Any]:
    return {
        "SPDXID": identifier,
        "name": name,
        "downloadLocation": _UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": _UNKNOWN,
        "licenseDeclared": _UNKNOWN,
        "copyrightText": _UNKNOWN,
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256}],
    }


def _located(package: dict[str, Any], locked: Locked, purl: str) -> dict[str, Any]:
    reference = {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": purl,
    }
    return package | {"versionInfo": locked.version, "externalRefs": [reference]}


def _deb_package(locked: Locked) -> dict[str, Any]:
    package = _package(_identifier("deb", locked), locked.name, locked.sha256)
    version = quote(locked.version, safe="+.~-")
    return _located(package, locked, f"pkg:deb/debian/{locked.name}@{version}?arch=amd64")


def _wheel_package(locked: Locked, wheel: Path) -> dict[str, Any]:
    package = _package(_identifier("pypi", locked), locked.name, locked.sha256)
    declared, words = declared_license(metadata(wheel))
    package["licenseDeclared"] = declared
    if words and declared == _UNKNOWN:
        package["licenseComments"] = f"The package says: {words}"
    return _located(package, locked, f"pkg:pypi/{locked.name}@{quote(locked.version)}")


def _identifier(kind: str, locked: Locked) -> str:
    """An SPDX identifier holds letters, digits, `.` and `-` only; one that had others, a mark."""
    plain = re.sub(r"[^A-Za-z0-9.-]", lambda match: f"-x{ord(match[0]):x}-", locked.name)
    return f"SPDXRef-{kind}-{plain}"


def metadata(wheel: Path) -> Message:
    """A wheel's METADATA.

    Raises:
        ImageError: It has none.
    """
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"[^/]+\.dist-info/METADATA", name):
                return email.message_from_string(archive.read(name).decode())
    raise ImageError(f"{wheel.name}: expected a wheel with METADATA, found none")


def declared_license(fields: Message) -> tuple[str, str]:
    """The SPDX expression that a package declares, or NOASSERTION; and its own words, on a line."""
    expression = fields.get("License-Expression")
    if expression:
        return expression, expression
    text = (fields.get("License") or "").strip()
    own_words = text.splitlines()[0] if text else ""
    known = _SPDX_IDS.get(own_words.lower())
    if known:
        return known, own_words
    said = [line.removeprefix(_OSI) for line in fields.get_all("Classifier", []) if _OSI in line]
    ids = {_SPDX_IDS.get(words.lower(), _UNKNOWN) for words in said}
    return (ids.pop() if len(ids) == 1 else _UNKNOWN), "; ".join(said) or own_words
