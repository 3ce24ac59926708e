"""The SBOM against the specification's required fields, the locks, and the licence grammar."""

import json
import os
import re
from collections.abc import Callable
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from ci.image.locked import match
from ci.image.sbom import declared_license, document
from slime.doctor.lock_file import Locked, read_lock
from tests.image.conftest import ROOT

DIGEST = "sha256:" + "a" * 64


def check(sbom: dict[str, Any]) -> None:
    """What SPDX 2.3 demands of a document of packages (chapters 6, 7 and 11)."""
    assert sbom["spdxVersion"] == "SPDX-2.3"
    assert sbom["dataLicense"] == "CC0-1.0"
    assert sbom["SPDXID"] == "SPDXRef-DOCUMENT"
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", sbom["documentNamespace"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", sbom["creationInfo"]["created"])
    assert all(creator.startswith("Tool: ") for creator in sbom["creationInfo"]["creators"])
    identifiers = [package["SPDXID"] for package in sbom["packages"]]
    assert len(set(identifiers)) == len(identifiers)
    for package in sbom["packages"]:
        assert re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", package["SPDXID"])
        assert package["name"] and package["downloadLocation"] == "NOASSERTION"
        assert package["filesAnalyzed"] is False  # else a verification code would be due
        (checksum,) = package["checksums"]
        assert checksum["algorithm"] == "SHA256"
        assert re.fullmatch(r"[0-9a-f]{64}", checksum["checksumValue"])
        for reference in package.get("externalRefs", []):
            assert reference["referenceCategory"] == "PACKAGE-MANAGER"
            assert re.fullmatch(
                r"pkg:(pypi|deb/debian)/[^@]+@[^@: ]+", reference["referenceLocator"]
            )
        declared = package["licenseDeclared"]
        if declared != "NOASSERTION":
            try:
                assert canonicalize_license_expression(declared)
            except InvalidLicenseExpression:
                pytest.fail(f"{package['name']}: {declared} is no SPDX expression")
    describes, *contained = sbom["relationships"]
    assert describes["relationshipType"] == "DESCRIBES"
    assert describes["spdxElementId"] == "SPDXRef-DOCUMENT"
    assert describes["relatedSpdxElement"] == identifiers[0]
    assert {edge["relationshipType"] for edge in contained} <= {"CONTAINS"}
    assert {edge["spdxElementId"] for edge in contained} <= {identifiers[0]}
    assert [edge["relatedSpdxElement"] for edge in contained] == identifiers[1:]


def test_names_versions_and_digests_of_both_locks(make_wheel, make_deb, write_lock, tmp_path: Path):
    wheel = make_wheel("tool_kit", "License-Expression: MIT OR Apache-2.0\n")
    deb = make_deb("libtool++", tmp_path / "tree")
    wheels = match(read_lock(write_lock("a", "1.0", tool_kit=wheel)).values(), [wheel])
    lock = tmp_path / "debs.lock"
    locked = read_lock(write_lock("b", "1:2.0~rc1+b3", libtool=deb))["libtool"]
    lock.write_text(f"libtool++=={locked.version} --hash=sha256:{locked.sha256}\n")
    sbom = document(DIGEST, "slime", wheels, match(read_lock(lock).values(), [deb]))
    check(sbom)
    image, tool, lib = sbom["packages"]
    assert image["checksums"][0]["checksumValue"] == "a" * 64
    assert (tool["name"], tool["versionInfo"]) == ("tool-kit", "1.0")
    assert tool["licenseDeclared"] == "MIT OR Apache-2.0"
    assert (lib["name"], lib["versionInfo"]) == ("libtool++", "1:2.0~rc1+b3")
    assert lib["checksums"][0]["checksumValue"] == locked.sha256
    assert lib["externalRefs"][0]["referenceLocator"] == (
        "pkg:deb/debian/libtool++@1%3A2.0~rc1+b3?arch=amd64"
    )
    other = document("sha256:" + "b" * 64, "slime", wheels, {})
    assert other["documentNamespace"] != sbom["documentNamespace"]


@pytest.mark.parametrize(
    ("fields", "declared"),
    [
        ("License-Expression: BSD-3-Clause\nLicense: MIT\n", "BSD-3-Clause"),
        ("License: MIT\n", "MIT"),
        (
            "License: Apache 2.0\nClassifier: License :: OSI Approved :: Apache Software License\n",
            "Apache-2.0",
        ),
        ("Classifier: License :: OSI Approved :: MIT License\n", "MIT"),
        # Three licences are called so, and two at once are joined by AND or OR: nobody says which.
        ("Classifier: License :: OSI Approved :: BSD License\n", "NOASSERTION"),
        (
            "Classifier: License :: OSI Approved :: MIT License\n"
            "Classifier: License :: OSI Approved :: ISC License (ISCL)\n",
            "NOASSERTION",
        ),
        ("", "NOASSERTION"),
    ],
)
def test_licences(fields: str, declared: str):
    assert declared_license(message_from_string("Name: a\n" + fields + "\n"))[0] == declared


def test_own_words_are_kept(make_wheel: Callable[..., Path]):
    wheel = make_wheel("old", "License: Do as you like,\n        but not that\n")
    sbom = document(DIGEST, "slime", {Locked("old", "1.0", "c" * 64): wheel}, {})
    check(sbom)
    assert sbom["packages"][1]["licenseComments"] == "The package says: Do as you like,"


@pytest.mark.skipif("BAZEL_TEST" not in os.environ, reason="the image is Bazel's")
def test_of_the_small_image():
    small = ROOT / "ci/image/small"
    sbom = json.loads((small / "sbom.spdx.json").read_text())
    check(sbom)
    index = json.loads((small / "image/index.json").read_text())
    digest = index["manifests"][0]["digest"].removeprefix("sha256:")
    assert sbom["packages"][0]["checksums"][0]["checksumValue"] == digest
    assert [package["name"] for package in sbom["packages"][1:]] == [
        "orjson",
        "packaging",
        "pyyaml",
    ]
