"""Import every module of one pure room where only its declared packages are present."""

import importlib
import os
import pkgutil
import sys

import pytest

ROOM = f"slime.{os.environ['SLIME_ROOM']}"
FORBIDDEN = ("megatron", "ray", "sglang", "sglang_router", "torch", "transformers")


def modules_of_room() -> list[str]:
    """The room's own name and those of all its modules."""
    package = importlib.import_module(ROOM)
    return [ROOM, *(m.name for m in pkgutil.walk_packages(package.__path__, ROOM + "."))]


@pytest.mark.parametrize("module", modules_of_room())
def test_imports(module):
    importlib.import_module(module)


def test_has_modules_and_imported_nothing_forbidden():
    assert len(modules_of_room()) > 1
    assert not set(FORBIDDEN) & set(sys.modules)
