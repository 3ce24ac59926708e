"""What a model's checkpoint says its weights are called and how large they are.

An engine ignores a name it does not know and dies of a wrong shape, so both are refused before
anything is sent.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from safetensors import safe_open

from slime.weights.errors import WeightUpdateError

Shapes = Mapping[str, tuple[int, ...]]


def checkpoint_shapes(folder: str | Path) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor in a folder of safetensors files; no tensor is read."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, framework="numpy") as reader:
            for name in reader.keys():  # noqa: SIM118 - safe_open is no mapping
                shapes[name] = tuple(reader.get_slice(name).get_shape())
    return shapes


def check_shapes(expected: Shapes, given: Iterable[tuple[str, tuple[int, ...]]]) -> None:
    """Raise `WeightUpdateError` that lists every unknown name and every wrong shape."""
    wrong = [
        f"{name} {list(shape)} (the checkpoint has {list(expected[name])})"
        if name in expected
        else f"{name} (not in the checkpoint)"
        for name, shape in given
        if expected.get(name) != shape
    ]
    if wrong:
        raise WeightUpdateError("weights the engines cannot take: " + "; ".join(wrong))


def check_complete(expected: Shapes, given: set[str]) -> None:
    """Raise `WeightUpdateError` that lists what an update left out."""
    missing = sorted(expected.keys() - given)
    if missing:
        raise WeightUpdateError("the update left out " + ", ".join(missing))
