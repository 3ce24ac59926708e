"""Samples on disk: a JSON file, and beside it a safetensors file for their arrays. Nothing is
pickled.

In the JSON an array is `{"$array": key}`. The safetensors file is named by its content and written
first, so the JSON file never refers to arrays of another write.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from slime.arguments.errors import ConfigError, Problem
from slime.data.atomic_file import write_atomically
from slime.samples.sample import Sample

VERSION = 1
_ARRAY = "$array"


def write_samples(path: Path, groups: list[Any], header: dict[str, Any]) -> None:
    """Write (nested lists of) samples and a header of plain values; the file is whole or not there.

    Raises:
        TypeError: A sample holds something that is neither JSON nor an array; its place is named.
    """
    arrays: dict[str, np.ndarray] = {}
    document: dict[str, Any] = {
        "version": VERSION,
        "header": _pack(header, "header", arrays),
        "arrays": None,
        "samples": _pack(groups, "samples", arrays),
    }
    if arrays:
        content = save({key: np.ascontiguousarray(value) for key, value in arrays.items()})
        digest = hashlib.sha256(content).hexdigest()[:16]
        document["arrays"] = f"{path.name}.{digest}.safetensors"
        write_atomically(path.with_name(document["arrays"]), content)
    write_atomically(path, json.dumps(document, ensure_ascii=False).encode())


def read_samples(path: Path) -> tuple[list[Any], dict[str, Any]]:
    """The samples, nested as they were written, and the header.

    Raises:
        ConfigError: The file cannot be read, is not of this format, or was written by a newer
            version.
    """
    try:
        document = json.loads(path.read_bytes())
        version = document["version"]
        if version <= VERSION:
            arrays = load_file(path.with_name(document["arrays"])) if document["arrays"] else {}
            return _unpack(document["samples"], arrays), _unpack(document["header"], arrays)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            [Problem(str(path), None, f"is no file of samples: {error!r}", "check the path")]
        ) from error
    raise ConfigError(
        [
            Problem(
                str(path),
                version,
                f"was written by a newer version of slime (format {version}, known {VERSION})",
                "use the version that wrote it",
            )
        ]
    )


def _pack(value: Any, place: str, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, Sample):
        return {"$sample": _pack(value.to_dict(), place, arrays)}
    if isinstance(value, dict):
        return {str(key): _pack(item, f"{place}.{key}", arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        if all(type(item) in (int, float, str) for item in value):
            return list(value)
        return [_pack(item, f"{place}.{i}", arrays) for i, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int | float):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.generic):
        return value.item()
    if hasattr(value, "__array__") and np.asarray(value).dtype != object:
        arrays[place] = np.asarray(value)
        return {_ARRAY: place}
    raise TypeError(
        f"{place}: a {type(value).__name__} can be written neither as JSON nor as array"
    )


def _unpack(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, arrays) if isinstance(item, list | dict) else item for item in value]
    if not isinstance(value, dict):
        return value
    if _ARRAY in value:
        return arrays[value[_ARRAY]]
    if "$sample" in value:
        return Sample.from_dict(_unpack(value["$sample"], arrays))
    return {key: _unpack(item, arrays) for key, item in value.items()}
