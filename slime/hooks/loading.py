"""Import a function or class by its dotted path."""

import importlib
from typing import Any


def load_function(path: str) -> Any:
    """The object at `path`: `package.module.name`, or `package.module.Class.name`.

    Raises:
        ImportError: No prefix of `path` is a module, or the name is not in it. An error raised
            while the module itself is being imported comes through unchanged.
    """
    parts = path.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ImportError(f"{path!r} is no import path of the form package.module.name")
    for end in range(len(parts) - 1, 0, -1):
        module_name = ".".join(parts[:end])
        try:
            found: Any = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not (module_name + ".").startswith(error.name + "."):
                raise
            continue
        for position, name in enumerate(parts[end:], start=end):
            try:
                found = getattr(found, name)
            except AttributeError:
                where = ".".join(parts[:position])
                raise ImportError(f"{path!r}: {where} has no {name!r}") from None
        return found
    raise ImportError(f"{path!r}: no module named {parts[0]!r}")
