"""Checks of the model: is it one, does it fit the options, does the layout fit it."""

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slime.arguments.errors import Problem, option
from slime.arguments.facts import Facts
from slime.arguments.labels import is_label
from slime.arguments.model_config import megatron_shape, read_model_config
from slime.arguments.raw import RawArguments
from slime.arguments.resolve_model import padded_vocab_size
from slime.arguments.weight_files import check_weight_files

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tiktoken.model")
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_INDEX = "model.safetensors.index.json"
_LATEST = "latest_checkpointed_iteration.txt"
_STEPS = {
    "load": "ckpt_step",
    "ref_load": "ref_ckpt_step",
    "opd_teacher_load": "opd_teacher_ckpt_step",
}


def check_checkpoint(args: Namespace, raw: RawArguments) -> Iterator[Problem]:
    """--hf-checkpoint holds a whole model; --load and --ref-load hold a checkpoint."""
    given = raw.values["hf_checkpoint"]
    if given is None:
        yield Problem(
            "--hf-checkpoint", None, "needed", "give the directory of a Hugging Face model"
        )
    elif not is_label(args.hf_checkpoint):
        yield from _check_hf_directory("--hf-checkpoint", given, Path(args.hf_checkpoint))
    for dest in ("ref_load", "opd_teacher_load", "load"):
        value, path = raw.values[dest], getattr(args, dest)
        if value is None or is_label(path):
            continue
        directory = Path(path)
        own = dest == "load" and path == args.save  # continue if there is something, else start
        if own and not (directory / _LATEST).exists():
            continue
        if not directory.is_dir():
            yield Problem(
                option(dest), value, "no such directory", "give the directory of a checkpoint"
            )
        elif (directory / "config.json").exists():
            yield from _check_hf_directory(option(dest), value, directory)
        elif not (directory / _LATEST).exists():
            message = (
                "holds neither a Hugging Face model (config.json) nor a Megatron checkpoint "
                f"({_LATEST})"
            )
            yield Problem(option(dest), value, message)
        else:
            found = _check_iteration(option(dest), value, directory, getattr(args, _STEPS[dest]))
            if not (dest == "load" and args.use_previous_checkpoint and _whole(directory)):
                yield from found


def _whole(directory: Path) -> list[str]:
    """The complete checkpoints."""
    return sorted(file.parent.name for file in directory.glob("iter_*/metadata.json"))


def _check_iteration(name: str, given: str, directory: Path, step: int | None) -> Iterator[Problem]:
    """The iteration that is asked for (``None``: the latest) is there and complete."""
    whole = _whole(directory)
    remedy = f"it has: {', '.join(whole) or 'none at all'}"
    if whole and name == "--load":
        remedy += "; --use-previous-checkpoint goes on from the newest before"
    try:
        wanted = str(step) if step is not None else (directory / _LATEST).read_text().strip()
    except (OSError, ValueError) as error:
        yield Problem(name, given, f"its {_LATEST} cannot be read: {error}")
        return
    if not wanted.isdecimal():
        yield Problem(name, given, f"its {_LATEST} holds {wanted[:20]!r}, not an iteration", remedy)
    elif not (directory / f"iter_{int(wanted):07d}" / "metadata.json").is_file():
        message = f"holds no complete checkpoint of iteration {wanted}"
        yield Problem(name, given, message, remedy)


def _check_hf_directory(name: str, given: str, directory: Path) -> Iterator[Problem]:
    if not directory.is_dir():
        remedy = "give the directory of a Hugging Face model"
        if given.count("/") == 1 and not given.startswith((".", "/", "~")):
            remedy += f"; to fetch one from the hub: hf download {given} --local-dir DIRECTORY"
        yield Problem(name, given, "no such directory", remedy)
        return
    config: dict[str, Any] = {}
    try:
        config = read_model_config(directory)
    except FileNotFoundError:
        yield Problem(name, given, "holds no model: there is no config.json in it")
        return
    except (OSError, ValueError) as error:
        yield Problem(name, given, f"its config.json cannot be read: {error}")
    if not any((directory / file).exists() for file in _TOKENIZERS):
        message = f"holds no tokenizer ({', '.join(_TOKENIZERS)})"
        yield Problem(name, given, message, "save the tokenizer into the same directory")
    if (directory / _INDEX).exists():
        yield from _check_index(name, given, directory)
    elif not any(next(directory.glob(pattern), None) for pattern in _WEIGHTS):
        yield Problem(name, given, f"holds no weights ({', '.join(_WEIGHTS)})")
    for message in check_weight_files(directory, config):
        yield Problem(name, given, message, "copy the whole model")


def _check_index(name: str, given: str, directory: Path) -> Iterator[Problem]:
    try:
        index = json.loads((directory / _INDEX).read_text(encoding="utf-8"))
        files = sorted(set(index["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        yield Problem(name, given, f"its {_INDEX} cannot be read: {error!r}")
        return
    missing = [file for file in files if not (directory / file).exists()]
    if missing:
        message = (
            f"{len(missing)} of its {len(files)} weight files are missing: {', '.join(missing[:3])}"
        )
        yield Problem(name, given, message, "copy the whole model")


def check_shape(args: Namespace, raw: RawArguments, facts: Facts) -> Iterator[Problem]:
    """Shape options that were given say the same as the checkpoint's config.json."""
    for name, expected in megatron_shape(facts.hf_config or {}).items():
        given = raw.values[name]
        if raw.given(name) and not _agrees(args, name, given, expected):
            message = f"the model's config.json says {expected}"
            yield Problem(
                option(name),
                given,
                message,
                "leave the option out: it is read from --hf-checkpoint",
            )
    if facts.hf_config is not None:
        for name in (
            "num_layers",
            "hidden_size",
            "num_attention_heads",
            "vocab_size",
            "ffn_hidden_size",
        ):
            if getattr(args, name) is None:
                yield Problem(
                    option(name), None, "not in the model's config.json", "give it as an option"
                )


def _agrees(args: Namespace, name: str, given: Any, expected: Any) -> bool:
    if name == "vocab_size":
        padded = padded_vocab_size(
            expected, args.make_vocab_size_divisible_by, args.tensor_model_parallel_size
        )
        return given in (expected, padded)
    if isinstance(expected, float):
        return bool(abs(given - expected) <= 1e-6 * abs(expected))
    return bool(given == expected)


def check_replay(args: Namespace) -> Iterator[Problem]:
    """Routes are replayed where there are experts to choose from."""
    for dest in ("use_routing_replay", "use_rollout_routing_replay"):
        if getattr(args, dest) and not args.num_experts:
            message = "the model has no experts"
            yield Problem(option(dest), True, message, "leave it out for a dense model")


def check_layout(args: Namespace) -> Iterator[Problem]:
    """Heads, layers and experts can be split as the parallel sizes say."""
    tensor, pipeline = args.tensor_model_parallel_size, args.pipeline_model_parallel_size
    for name in (
        "num_attention_heads",
        "num_query_groups",
        "ffn_hidden_size",
    ):
        value = getattr(args, name)
        if value is not None and value % tensor:
            message = f"the model's {name} {value} cannot be split over {tensor} ranks"
            yield Problem(
                "--tensor-model-parallel-size", tensor, message, f"give a divisor of {value}"
            )
    uneven = (
        args.decoder_first_pipeline_num_layers
        or args.decoder_last_pipeline_num_layers
        or args.pipeline_model_parallel_layout
        or args.account_for_embedding_in_pipeline_split
        or args.account_for_loss_in_pipeline_split
    )
    stages = pipeline * (args.virtual_pipeline_model_parallel_size or 1)
    if args.num_layers is not None and not uneven and args.num_layers % stages:
        message = f"the model's {args.num_layers} layers cannot be split over {stages} stages"
        remedy = (
            "give a divisor, or the layers of the first and last stage "
            "(--decoder-first-pipeline-num-layers)"
        )
        yield Problem("--pipeline-model-parallel-size", pipeline, message, remedy)
    yield from _check_experts(args)


def _check_experts(args: Namespace) -> Iterator[Problem]:
    """The experts, and each of them, can be split over the ranks there are."""
    ranks, split = args.expert_model_parallel_size, args.expert_tensor_parallel_size
    option, width = "--expert-model-parallel-size", args.moe_ffn_hidden_size
    if args.num_experts is None:
        if ranks > 1:
            yield Problem(option, ranks, "the model has no experts", "leave it out")
        return
    if args.num_experts % ranks:
        message = f"the model's {args.num_experts} experts cannot be split over {ranks} ranks"
        yield Problem(option, ranks, message, f"give a divisor of {args.num_experts}")
    if width is None:
        message = f"needed with --num-experts {args.num_experts}; config.json has no experts"
        remedy = "leave out --num-experts for a dense model"
        yield Problem("--moe-ffn-hidden-size", None, message, remedy)
    elif width % split:
        message = f"an expert's moe_ffn_hidden_size {width} cannot be split over {split} ranks"
        remedy = f"give a divisor of {width}"
        yield Problem("--expert-tensor-parallel-size", split, message, remedy)
    if args.tensor_model_parallel_size > 1 and not args.sequence_parallel:
        message = "a mixture of experts with tensor parallelism needs it"
        yield Problem("--sequence-parallel", False, message, "add --sequence-parallel")
