"""Published import paths give the very objects of the rooms, and absent rooms are named."""

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import slime.published_paths as published_paths
from slime.published_paths import PUBLISHED

PURE_ROOMS = {"arguments", "samples", "data", "rewards", "filters", "hooks", "schedules"}


def is_here(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def in_pure_room(module: str) -> bool:
    return module.split(".")[1] in PURE_ROOMS and is_here(module)


ALIASES = [(p, t) for p, t in PUBLISHED.items() if isinstance(t, str) and in_pure_room(t)]
NAMES = [
    (published, name, module)
    for published, entry in PUBLISHED.items()
    if not isinstance(entry, str)
    for name, module in entry.items()
    if in_pure_room(module)
]
ABSENT = [
    (published, entry)
    for published, entry in PUBLISHED.items()
    if isinstance(entry, str) and not is_here(entry)
]


@pytest.mark.parametrize(("published", "target"), ALIASES)
def test_an_alias_is_the_rooms_module(published: str, target: str) -> None:
    room = importlib.import_module(target)
    assert importlib.import_module(published) is room
    assert room.__spec__.name == room.__name__ == target  # the alias left no trace on it


@pytest.mark.parametrize(("published", "name", "module"), NAMES)
def test_a_gathered_name_is_the_rooms_object(published: str, name: str, module: str) -> None:
    gathered = importlib.import_module(published)
    assert name in dir(gathered)
    assert getattr(gathered, name) is getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(("published", "target"), ABSENT)
def test_an_absent_room_is_named(published: str, target: str) -> None:
    with pytest.raises(ImportError, match=rf"{published} belongs to the room slime\.\w+"):
        importlib.import_module(published)


def test_either_order_of_import_gives_one_module() -> None:
    code = (
        "import {0}, {1}, sys; a, b = sys.modules['{0}'], sys.modules['{1}']; assert a is b; "
        "from slime.utils import types; assert types is a"
    )
    for first, second in [
        ("slime.utils.types", "slime.samples.sample"),
        ("slime.samples.sample", "slime.utils.types"),
    ]:
        subprocess.run([sys.executable, "-c", code.format(first, second)], check=True)


def test_published_paths_need_no_room_above_them(tmp_path: Path) -> None:
    """A build of the pure rooms alone has no slime.rollout; its published modules still import."""
    root = Path(published_paths.__file__).parent
    for name in ("__init__.py", "published_paths.py", "samples", "filters"):
        (tmp_path / "slime").mkdir(exist_ok=True)
        (tmp_path / "slime" / name).symlink_to(root / name)
    (tmp_path / "slime" / "utils").mkdir()  # a folder without code is no package
    code = (
        "from slime.rollout.data_source import pop_first; import slime.rollout, slime.utils.types;"
        "assert slime.rollout.__spec__.origin is None; assert slime.utils.types.Sample"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_unknown_names_fail_as_python_does() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("slime.utils.no_such_module")
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from slime.utils.misc import no_such_name")


def test_a_broken_room_reports_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing dependency inside a room must not look like an absent room."""

    def broken(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(published_paths.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="torch"):
        published_paths._import_room("slime.utils.memory_utils", "slime.trainer.memory")


def test_installing_twice_changes_nothing() -> None:
    before = list(sys.meta_path)
    published_paths.install()
    assert sys.meta_path == before


def test_importing_slime_imports_no_room() -> None:
    code = (
        "import sys, slime; loaded = {m for m in sys.modules if m.startswith('slime')}; "
        "assert loaded == {'slime', 'slime.published_paths'}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
