"""A package index in a folder: pip and uv are told to look there and nowhere else."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

MakeWheel = Callable[..., str]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder; it starts empty."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    (tmp_path / "uv.toml").write_text(f'[pip]\nno-index = true\nfind-links = ["{folder}"]\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(tmp_path / "uv.toml"))
    return folder


@pytest.fixture
def make_wheel(index: Path) -> MakeWheel:
    """Put a small wheel into the index; returns its sha256."""

    def make(name: str, version: str = "1.0", needs: tuple[str, ...] = (), **files: str) -> str:
        info = f"{name}-{version}.dist-info"
        metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"]
        metadata += [f"Requires-Dist: {need}\n" for need in needs]
        contents = {
            f"{name}/__init__.py": f"version = {version!r}\n",
            **{path.replace("__DOT__", "."): text for path, text in files.items()},
            f"{info}/METADATA": "".join(metadata),
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        contents[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in contents)
        wheel = index / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in contents.items():
                member = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
                member.external_attr = (0o755 if text.startswith("#!") else 0o644) << 16
                archive.writestr(member, text)
        return hashlib.sha256(wheel.read_bytes()).hexdigest()

    return make
