"""Every other field of the installed Megatron's configurations is an option too, read from its
source text: importing it takes seconds and needs torch.

The trainer hands each argument that is named like a field of `TransformerConfig` or
`OptimizerConfig` to Megatron, so such an option only has to be known, typed and set.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from slime.arguments.flag import Flag, layer_pattern
from slime.arguments.installed_options import class_fields, find_on_path
from slime.arguments.registry import flags_by_key

_SOURCES = {
    "megatron/core/model_parallel_config.py": "ModelParallelConfig",
    "megatron/core/transformer/transformer_config.py": "TransformerConfig",
    "megatron/core/optimizer/optimizer_config.py": "OptimizerConfig",
}
_KINDS: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "Union[int,List[int]]": layer_pattern,
}
_LISTS = {"List[int]": int, "list[int]": int, "List[str]": str, "list[str]": str}
# Fields that slime sets itself -> what to use instead.
MANAGED: Mapping[str, str] = {
    "layernorm_epsilon": "use --norm-epsilon",
    "num_moe_experts": "use --num-experts",
    "layernorm_zero_centered_gamma": "use --apply-layernorm-1p",
    "num_layers_in_first_pipeline_stage": "use --decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "use --decoder-last-pipeline-num-layers",
    "microbatch_group_size_per_vp_stage": "use --microbatch-group-size-per-virtual-pipeline-stage",
    "gated_linear_unit": "slime's models are gated",
    "use_cpu_initialization": "use --device",
    "variable_seq_lengths": "slime packs sequences of any length",
    "deallocate_pipeline_outputs": "slime sets it",
}


@cache
def megatron_flags() -> dict[str, Flag]:
    """Key -> flag, for the fields slime has no option for; empty when Megatron is not installed."""
    flags: dict[str, Flag] = {}
    for file, name in _SOURCES.items():
        source = find_on_path(file)
        if source is None:
            continue
        fields = class_fields(ast.parse(source.read_text(encoding="utf-8")), want=(name,))
        for key, annotation in fields.items():
            flag = flag_of(key, annotation, f"Field of Megatron's {name}.")
            if flag is not None and key not in flags_by_key() and key not in MANAGED:
                flags[key] = flag
    return flags


def flag_of(key: str, annotation: str, help: str) -> Flag | None:
    """The flag of a field; None where its type is none that can be written down."""
    kind = re.sub(r"\s", "", annotation)
    optional = re.fullmatch(r"Optional\[(.*)\]", kind)
    kind = optional[1] if optional else kind
    name = "--" + key.replace("_", "-")
    if kind.startswith("Literal["):
        choices = tuple(ast.literal_eval(kind.removeprefix("Literal")))
        return Flag(name, str, None, help, choices=choices)
    if kind in _LISTS:
        return Flag(name, _LISTS[kind], None, help, nargs="+")
    return Flag(name, _KINDS[kind], None, help) if kind in _KINDS else None


def take_from_words(words: Sequence[str]) -> tuple[list[tuple[Flag, list[str]]], list[str]]:
    """Of words that no flag of slime's takes: (flag, its words), and what is left.

    A switch without a word is on, its `--no-` form off.
    """
    if not any(word.startswith("--") for word in words):
        return [], list(words)
    taken: list[tuple[Flag, list[str]]] = []
    left: list[str] = []
    current: list[str] = left
    for word in words:
        if not word.startswith("--"):
            current.append(word)
            continue
        name, equals, value = word.partition("=")
        key = name[2:].replace("-", "_")
        flag = megatron_flags().get(key)
        opposite = megatron_flags().get(key.removeprefix("no_"))
        if flag is not None:
            current = [value] if equals else []
            taken.append((flag, current))
        elif opposite is not None and opposite.kind is bool:
            current = left
            taken.append((opposite, ["false"]))
        else:
            current = left
            left.append(word)
    return [(flag, texts or (["true"] if flag.kind is bool else [])) for flag, texts in taken], left
