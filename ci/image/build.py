"""Makes the image of slime from locked files: the one writer behind Bazel's and Nix's targets.

    python3 -m ci.image.build --requirements requirements.lock.txt --wheels DIR \\
        --deb-lock ci/image/base.deb.lock --debs DIR --source . --out OUT

OUT gets `image/`, an OCI layout, and `sbom.spdx.json`; the digest is printed. Layers, those that
change least first: Debian with its Python; each large wheel; all other wheels; slime.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ci.image import sbom
from ci.image.debian import base_layer
from ci.image.locked import ImageError, chosen, files_of, match
from ci.image.members import Members, add_sources, add_wheel, content_of
from ci.image.oci import Layer, write_layout
from slime.doctor.lock_file import Locked, LockError, read_lock

_SITE = "usr/local/lib/python3.11/dist-packages"  # on Debian's Python's path by default
_HOME = "opt/slime"
_LARGE = 30_000_000
_SOURCES = (
    *("examples/__init__.py", "examples/quickstart", "slime"),
    *("nix/pins.json", "requirements.cuda.lock.txt", "requirements.lock.txt"),  # for the doctor
)
_NOT_SOURCES = ("BUILD.bazel",)

CONFIG = {
    "Env": [
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "LANG=C.UTF-8",
        "HF_HUB_OFFLINE=1",
        f"PYTHONPATH=/{_HOME}",
    ],
    "Entrypoint": ["python3", "-m", "slime.train"],
    "Cmd": ["--help"],
    "WorkingDir": f"/{_HOME}",
}


def wheel_layers(wheels: dict[Locked, Path]) -> list[Layer]:
    """A layer for each wheel of more than 30 MB, and one for the others.

    Raises:
        ImageError: Two wheels hold different files of one name.
    """
    layers, small = [], Layer("python packages", {})
    seen: Members = {}
    for locked, path in wheels.items():
        layer = small
        if path.stat().st_size > _LARGE:
            layer = Layer(f"python package {locked.pin}", {})
            layers.append(layer)
        own: Members = {}
        add_wheel(own, path, _SITE)
        for place in own.keys() & seen.keys():
            if content_of(own, place) != content_of(seen, place):
                raise ImageError(f"/{place}: {locked.pin} and another wheel hold different files")
        layer.members.update(own)
        seen |= own
    return [*layers, small]


def source_files(root: Path) -> list[str]:
    """The files of a checkout that belong into the image, relative to it."""
    places = (root / place for place in _SOURCES)
    files = (path for place in places for path in (place, *place.rglob("*")) if path.is_file())
    kept = (path for path in files if "__pycache__" not in path.parts)
    return [str(path.relative_to(root)) for path in kept if path.name not in _NOT_SOURCES]


def build(
    out: Path, title: str, wheels: dict[Locked, Path], debs: dict[Locked, Path], sources: Members
) -> str:
    """Write the image and its SBOM below `out`; returns the image's digest."""
    layers = [
        Layer("debian", base_layer({locked.name: path for locked, path in debs.items()})),
        *wheel_layers(wheels),
        Layer("slime", sources),
    ]
    out.mkdir(parents=True, exist_ok=True)
    digest = write_layout(out / "image", [layer for layer in layers if layer.members], CONFIG)
    listed = sbom.document(digest, title, wheels, debs)
    (out / "sbom.spdx.json").write_text(json.dumps(listed, indent=1, sort_keys=True) + "\n")
    return digest


def main(argv: Sequence[str]) -> int:
    """Command line entry; a wrong input ends it with 1 and a message."""
    parser = argparse.ArgumentParser(description=__doc__, fromfile_prefix_chars="@")
    parser.add_argument("--title", default="slime", help="name of the image in the SBOM")
    parser.add_argument("--requirements", type=Path, required=True)
    parser.add_argument("--package", action="append", default=[], help="only these of the lock")
    parser.add_argument("--wheels", type=Path, nargs="*", default=[], help="files or folders")
    parser.add_argument("--deb-lock", type=Path, help="no base layer without it")
    parser.add_argument("--debs", type=Path, nargs="*", default=[], help="files or folders")
    parser.add_argument("--source", type=Path, required=True, help="the checkout")
    parser.add_argument("--source-file", action="append", help="only these, relative to it")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(argv)
    try:
        locked = chosen(read_lock(options.requirements), options.package)
        wheels = match(locked, files_of(options.wheels, ".whl"))
        deb_lock = read_lock(options.deb_lock) if options.deb_lock else {}
        debs = match(deb_lock.values(), files_of(options.debs, ".deb"))
        sources: Members = {}
        files = options.source_file or source_files(options.source)
        add_sources(sources, options.source, files, _HOME)
        print(build(options.out, options.title, wheels, debs, sources))
    except (ImageError, LockError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
