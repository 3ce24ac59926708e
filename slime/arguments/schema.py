"""A JSON schema of configuration files, so that editors complete options and mark mistakes.

Write it with `python -m slime.arguments.schema > slime/arguments/config.schema.json` and name it in
the first line of a file: `# yaml-language-server: $schema=PATH`. It is stricter than the parser in
one point: an option stands at the top or in its own group.
"""

import json
import sys
from typing import Any

from slime.arguments.flag import Flag, layer_pattern
from slime.arguments.passthrough import TARGETS
from slime.arguments.raw import NOT_IN_FILES
from slime.arguments.registry import GROUPS, flags_by_key

_INTERPOLATED = {"type": "string", "pattern": r"\$\{env:"}
_ENVIRONMENT = "from-environment"  # name of the definition; options have no dashes
_KINDS: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    layer_pattern: {"type": ["integer", "string", "array"]},
}


def config_schema() -> dict[str, Any]:
    """The schema as a JSON value."""
    keys = {
        key: _described(flag)
        for key, (flag, _) in flags_by_key().items()
        if flag.dest not in NOT_IN_FILES
    }
    groups = {}
    for group in GROUPS:
        names = {name for flag in group.flags for name in (flag.key, flag.dest)}
        groups[group.name] = {
            "description": group.title,
            "type": ["object", "null"],
            "properties": {
                name: {"$ref": f"#/$defs/{name}"} for name in sorted(names) if name in keys
            },
            "additionalProperties": False,
        }
    groups["megatron"] = {
        "description": "Any other field of Megatron's TransformerConfig or OptimizerConfig.",
        "type": ["object", "null"],
    }
    for name in groups.keys() & keys.keys():  # `optimizer` is an option and a group
        groups[name] = {"anyOf": [groups[name], {"$ref": f"#/$defs/{name}"}]}
    passed = {
        target.prefix: {"description": f"Options of {target.program}.", "type": "object"}
        for target in TARGETS
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "slime configuration",
        "type": "object",
        "properties": {**{name: {"$ref": f"#/$defs/{name}"} for name in keys}, **groups, **passed},
        "patternProperties": {f"^{target.prefix}_": {} for target in TARGETS},
        "additionalProperties": False,
        "$defs": {**keys, _ENVIRONMENT: _INTERPOLATED},
    }


def render_schema() -> str:
    """The schema as the text of its file: one option a line, so that a change shows as one line."""
    schema = config_schema()
    parts = []
    for name, value in schema.items():
        if name in ("properties", "$defs"):
            rows = ",\n".join(
                f"{json.dumps(key)}: {json.dumps(value[key])}" for key in sorted(value)
            )
            parts.append(f"{json.dumps(name)}: {{\n{rows}\n}}")
        else:
            parts.append(f"{json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _described(flag: Flag) -> dict[str, Any]:
    one: dict[str, Any] = (
        {"enum": list(flag.choices)} if flag.choices else _KINDS.get(flag.kind, {})
    )
    forms = [one] if flag.nargs is None else [one, {"type": "array", "items": one}]
    if flag.default is None:
        forms.append({"type": "null"})
    if flag.kind is not str or flag.choices:
        forms.append({"$ref": f"#/$defs/{_ENVIRONMENT}"})
    return {"description": flag.help, "default": flag.default, "anyOf": forms}


if __name__ == "__main__":
    sys.stdout.write(render_schema())
