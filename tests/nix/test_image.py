"""The image: Nix and Bazel write the same bytes, with one writer, from one lock."""

import json
import shutil
import sys
from pathlib import Path

from tests.nix.conftest import ROOT, Flake, contents

SMALL = ".#packages.x86_64-linux.image-small"
NAMES = ("orjson", "packaging", "pyyaml")


def store_of_bazels_wheels(folder: Path) -> Path:
    """A store of wheels, as third_party/pypi/store.py keeps it, of those that the target brings."""
    sums = json.loads((ROOT / "ci/image/small/sbom.spdx.json").read_text())["packages"]
    for package in sums[1:]:
        (wheel,) = ROOT.parent.glob(f"*pypi_{package['name']}/*.whl")
        place = folder / "wheels" / package["checksums"][0]["checksumValue"]
        place.mkdir(parents=True)
        shutil.copyfile(wheel, place / wheel.name)
    return folder


def test_is_bazels(flake: Flake, tmp_path: Path):
    flake.environment = flake.environment | {
        "PIP_NO_INDEX": "1",
        "SLIME_PYPI_STORE": str(store_of_bazels_wheels(tmp_path / "store")),
    }
    added = flake.run(sys.executable, "nix/add_wheels.py", *NAMES)
    assert added.stdout == "added 3 wheels to the Nix store\n", added.stderr
    flake.nix("build", SMALL)
    by_nix = contents(flake.folder / "result")
    assert by_nix == contents(ROOT / "ci/image/small")
    assert len(by_nix) > 5
    flake.nix("build", SMALL, "--rebuild")  # Nix compares again


def test_says_how_to_bring_missing_packages(flake: Flake):
    said = flake.error("build", "-L", ".#packages.x86_64-linux.image-cpu")
    assert "is not in the Nix store: run python3 nix/add_" in said


def test_a_tampered_line_of_debians_lock(flake: Flake):
    lock = (flake.folder / "ci/image/base.deb.lock").read_text()
    line = next(line for line in lock.splitlines() if line.startswith("libc6=="))
    flake.edit("ci/image/base.deb.lock", line, line[:-1])
    said = flake.error("eval", "--raw", ".#packages.x86_64-linux.image-cpu.drvPath")
    assert "base.deb.lock" in said and line[:-1] in said
