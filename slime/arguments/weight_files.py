"""Whether the weight files of a Hugging Face model are whole and belong to its config.json.

Only the headers are read (the format: 8 bytes of length, JSON, then the tensors' bytes).
"""

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

_LONGEST_HEADER = 100_000_000  # the format's own limit
_LAYER = re.compile(r"^(?:language_model\.)?model\.(?:language_model\.)?layers\.(\d+)\.")
_EMBEDDING = re.compile(r"^(?:language_model\.)?model\.(?:language_model\.)?embed_tokens\.weight$")


def read_shapes(file: Path) -> dict[str, list[int]]:
    """Tensor shapes by name, not to be changed: who asks again gets the same ones.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no safetensors file, or not a whole one.
    """
    found = file.stat()
    return _read_header(file, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=1024)  # two checks ask for them, and a large model's take a tenth of a second
def _read_header(file: Path, size: int, changed_ns: int) -> dict[str, list[int]]:
    """The shapes in a file of this size, as it was when it was last changed."""
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or length > _LONGEST_HEADER:
            raise ValueError("is no safetensors file")
        if size < 8 + length:
            raise ValueError(f"breaks off in its header, after {size} bytes")
        try:
            header = json.loads(opened.read(length))
            tensors = {name: value for name, value in header.items() if name != "__metadata__"}
            end = max((value["data_offsets"][1] for value in tensors.values()), default=0)
            shapes = {name: list(value["shape"]) for name, value in tensors.items()}
        except (ValueError, KeyError, IndexError, TypeError, AttributeError):
            raise ValueError("is no safetensors file: its header cannot be read") from None
    if size != 8 + length + end:
        raise ValueError(f"has {size} bytes, and by its header it is one of {8 + length + end}")
    return shapes


def check_weight_files(directory: Path, config: dict[str, Any]) -> Iterator[str]:
    """What is wrong with the model's safetensors files; nothing if there are none.

    `config`: the parsed config.json.
    """
    shapes: dict[str, list[int]] = {}
    whole = True
    for file in sorted(directory.glob("*.safetensors")):
        try:
            shapes |= read_shapes(file)
        except OSError as error:
            yield f"{file.name} cannot be read: {error.strerror}"
            whole = False
        except ValueError as error:
            yield f"{file.name} {error}"
            whole = False
    if shapes and whole:
        yield from _disagreements(shapes, config.get("text_config") or config)


def _disagreements(shapes: dict[str, list[int]], config: dict[str, Any]) -> Iterator[str]:
    """Where the tensors contradict the config; layers beyond its count may be for prediction of
    several tokens."""
    layers = {int(match[1]) for match in map(_LAYER.match, shapes) if match}
    wanted = config.get("num_hidden_layers")
    if layers and wanted and not layers >= set(range(wanted)):
        yield f"its config.json says {wanted} layers, its weights have {len(layers)}"
    expected = [config.get("vocab_size"), config.get("hidden_size")]
    for name, shape in shapes.items():
        if _EMBEDDING.match(name) and None not in expected and shape != expected:
            yield f"its config.json says vocabulary and hidden size {expected}, {name} is {shape}"
