"""The image as a whole: one digest wherever it is built, and the files that pip would install."""

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ci.image import build as build_module
from ci.image.build import main
from ci.image.locked import ImageError, chosen, files_of, match
from slime.doctor.lock_file import read_lock
from tests.image.conftest import ROOT
from third_party.pypi.store import Requirement, store_root, wheel_of

SMALL = ["orjson", "packaging", "pyyaml"]  # as in ci/image/BUILD.bazel
SOURCES = ["slime/__init__.py", "slime/published_paths.py"]
LOCK = ROOT / "requirements.lock.txt"


@pytest.fixture
def wheels() -> list[Path]:
    """The locked wheels of SMALL: the test's own in Bazel, else the store's."""
    lines = chosen(read_lock(LOCK), SMALL)
    found = [wheel for name in SMALL for wheel in ROOT.parent.glob(f"*pypi_{name}/*.whl")]
    pins = [Requirement(f"{one.pin} --hash=sha256:{one.sha256}") for one in lines]
    return found or [wheel for pin in pins if (wheel := wheel_of(store_root(), pin))]


@pytest.fixture
def build(wheels: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture) -> Callable[..., str]:
    """``build(out, *options)`` builds the small image into the folder ``out``; its digest."""

    def run(out: Path, *options: str, sources: list[str] = SOURCES) -> str:
        arguments = [f"--requirements={LOCK}", f"--source={ROOT}", f"--out={out}"]
        arguments += [f"--package={name}" for name in SMALL]
        arguments += [f"--source-file={path}" for path in sources]
        assert (
            main([*arguments, "--title=slime-small", *options, "--wheels", *map(str, wheels)]) == 0
        )
        return capsys.readouterr().out.strip()

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def blob(image: Path, digest: str) -> bytes:
    """A blob, after a check of what its name promises."""
    content = (image / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()
    assert "sha256:" + hashlib.sha256(content).hexdigest() == digest
    return content


def layers(image: Path) -> tuple[dict[str, Any], list[tarfile.TarFile]]:
    """Configuration and layers, read by the specification."""
    (described,) = json.loads((image / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(image, described["digest"]))
    configuration = json.loads(blob(image, manifest["config"]["digest"]))
    plain = [gzip.decompress(blob(image, layer["digest"])) for layer in manifest["layers"]]
    diff_ids = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in plain]
    assert diff_ids == configuration["rootfs"]["diff_ids"]
    assert [layer["size"] for layer in manifest["layers"]] == [
        len(blob(image, layer["digest"])) for layer in manifest["layers"]
    ]
    return configuration, [tarfile.open(fileobj=io.BytesIO(layer)) for layer in plain]


def test_built_in_two_folders_and_by_bazel(build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first = build(tmp_path / "a")
    # Another folder, umask, time zone and order of the inputs.
    (tmp_path / "elsewhere/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = os.umask(0o077)
    try:
        second = build(tmp_path / "elsewhere/deep/b", sources=SOURCES[::-1])
    finally:
        os.umask(before)
    assert first == second
    assert contents(tmp_path / "a") == contents(tmp_path / "elsewhere/deep/b")
    by_bazel = ROOT / "ci/image/small"
    if "BAZEL_TEST" in os.environ:
        assert contents(by_bazel) == contents(tmp_path / "a")


def test_holds_what_pip_installs(build, wheels: list[Path], tmp_path: Path):
    build(tmp_path / "out")
    lines = [f"{one.pin} --hash=sha256:{one.sha256}\n" for one in chosen(read_lock(LOCK), SMALL)]
    (tmp_path / "lock.txt").write_text("".join(lines))
    (tmp_path / "links").mkdir()
    for wheel in wheels:
        (tmp_path / "links" / wheel.name).symlink_to(wheel)
    command = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--no-index"]
    command += ["--find-links", str(tmp_path / "links"), "--require-hashes", "--no-compile"]
    command += ["--target", str(tmp_path / "pip"), "-r", str(tmp_path / "lock.txt")]
    command += ["--disable-pip-version-check", "--no-cache-dir"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run(command, check=True, env=env, cwd=tmp_path)
    # pip's own records of the installation say how it was done, and RECORD lists them.
    records = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")
    by_pip = contents(tmp_path / "pip")
    by_pip = {path: data for path, data in by_pip.items() if path.split("/")[-1] not in records}
    _, (packages, _) = layers(tmp_path / "out/image")
    site = "usr/local/lib/python3.11/dist-packages/"
    in_image = {
        entry.name.removeprefix(site): packages.extractfile(entry).read()
        for entry in packages
        if entry.isfile() and entry.name.split("/")[-1] not in records
    }
    assert in_image == by_pip
    assert any(path.endswith(".so") for path in in_image)


def test_members_carry_nothing_of_the_machine(build, tmp_path: Path):
    build(tmp_path / "out")
    configuration, opened = layers(tmp_path / "out/image")
    assert [entry["created_by"] for entry in configuration["history"]] == [
        "python packages",
        "slime",
    ]
    for layer in opened:
        seen: set[str] = set()
        for entry in layer:
            assert (entry.uid, entry.gid, entry.uname, entry.gname) == (0, 0, "", "")
            assert entry.mtime == 315532800
            assert entry.mode in (0o644, 0o755)
            parent = str(Path(entry.name).parent)
            assert parent == "." or parent in seen, f"{entry.name} comes before its folder"
            seen.add(entry.name)
    sources = {
        entry.name: opened[-1].extractfile(entry).read() for entry in opened[-1] if entry.isfile()
    }
    assert sources == {f"opt/slime/{path}": (ROOT / path).read_bytes() for path in SOURCES}


def test_a_changed_source_changes_the_last_layer_only(build, tmp_path: Path):
    def digests(out: Path) -> list[str]:
        (described,) = json.loads((out / "image/index.json").read_text())["manifests"]
        manifest = json.loads(blob(out / "image", described["digest"]))
        return [layer["digest"] for layer in manifest["layers"]]

    assert build(tmp_path / "a") != build(tmp_path / "b", sources=SOURCES[:1])
    before, after = digests(tmp_path / "a"), digests(tmp_path / "b")
    assert before[:-1] == after[:-1]
    assert before[-1] != after[-1]


def test_a_large_wheel_gets_its_own_layer(make_wheel, write_lock, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(build_module, "_LARGE", 2000)
    big, little = make_wheel("big", **{"big/data": "x" * 3000}), make_wheel("little")
    lock = read_lock(write_lock("lock.txt", "1.0", big=big, little=little))
    made = build_module.wheel_layers(match(lock.values(), files_of([big.parent], ".whl")))
    assert [layer.title for layer in made] == ["python package big==1.0", "python packages"]
    assert all("big" in path for path in made[0].members)


def test_two_wheels_with_different_files_of_one_name(make_wheel, write_lock):
    one = make_wheel("one", **{"tests/__init__.py": "", "shared.py": "x = 1"})
    two = make_wheel("two", **{"tests/__init__.py": "", "shared.py": "x = 2"})
    lock = read_lock(write_lock("lock.txt", "1.0", one=one, two=two))
    with pytest.raises(ImageError, match="shared.py: two==1.0 and another wheel hold different"):
        build_module.wheel_layers(match(lock.values(), files_of([one.parent], ".whl")))


def test_a_path_that_leads_out_of_the_image(make_wheel, write_lock, tmp_path: Path, capsys):
    wheel = make_wheel("evil", **{"../../../../../etc/passwd": "root"})
    lock = write_lock("lock.txt", "1.0", evil=wheel)
    arguments = [f"--requirements={lock}", f"--source={tmp_path}", f"--out={tmp_path / 'out'}"]
    assert main([*arguments, "--wheels", str(wheel)]) == 1
    assert "leads out of the image" in capsys.readouterr().err
