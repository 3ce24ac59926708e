"""Whether a torch_dist checkpoint can be read, and holds the model that it is to fill."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch.distributed as dist
from megatron.core.dist_checkpointing.core import CheckpointingException
from megatron.core.dist_checkpointing.dict_utils import nested_values
from megatron.core.dist_checkpointing.mapping import ShardedTensor
from megatron.core.dist_checkpointing.state_dict_utils import load_preprocess
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from slime.trainer.hf_to_megatron.common import CheckpointError

T = TypeVar("T")
# With what the names of a model's tensors begin; an optimizer's have others.
MODEL = ("embedding.", "decoder.", "output_layer.", "mtp.")
_PREDICTION = "mtp."
_UNREADABLE = (OSError, ValueError, RuntimeError, KeyError, EOFError, UnpicklingError)
Shape = tuple[int, ...]


def reading(folder: str, action: Callable[[], T]) -> T:
    """What ``action`` gives, which reads ``folder``.

    Raises:
        CheckpointError: it could not; says why, without the places in other people's code.
    """
    try:
        return action()
    except CheckpointError:
        raise
    except CheckpointException as error:  # torch's own, of all ranks
        reasons = {f"{type(cause).__name__}: {cause}" for cause, _ in error.failures.values()}
    except (*_UNREADABLE, CheckpointingException) as error:
        reasons = {f"{type(error).__name__}: {error}"}
    lines = sorted(reason.partition("\n")[0] for reason in reasons)
    raise CheckpointError(f"{folder} cannot be read, it is damaged: {'; '.join(lines)}") from None


def model_problem(
    args: Namespace, wanted: dict[str, Any], folder: str, common: dict[str, Any]
) -> str:
    """How the checkpoint's model differs, in every name and shape of all ranks; collective.

    Args:
        wanted: the sharded state of the model that is to be filled.
        common: what the checkpoint holds beside tensors.

    Returns:
        Lines, the same on every rank; nothing if it is the same model.
    """
    shapes: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(shapes, _wanted_shapes(wanted))
    told = [""]
    if dist.get_rank() == 0:
        ours = {key: shape for part in shapes for key, shape in part.items()}
        told = [_problem(args, ours, folder, common)]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def _problem(args: Namespace, ours: dict[str, Shape], folder: str, common: dict[str, Any]) -> str:
    try:
        theirs = reading(folder, lambda: _stored_shapes(folder))
    except CheckpointError as error:
        return str(error)
    lines = _other_vocabulary(args, common) + _differences(ours, theirs)
    if not lines:
        return ""
    head = f"{folder} is of another model than --hf-checkpoint {args.hf_checkpoint}:"
    return "\n  ".join([head, *lines])


def _wanted_shapes(wanted: dict[str, Any]) -> dict[str, Shape]:
    """Whole shapes by name; 0 for the vocabulary, whose padding depends on the layout."""
    shapes = {}
    for value in nested_values(load_preprocess(wanted)[0]):
        if isinstance(value, ShardedTensor) and value.key.startswith(MODEL):
            shape = tuple(value.global_shape)
            shapes[value.key] = (0, *shape[1:]) if value.allow_shape_mismatch else shape
    return shapes


def _stored_shapes(folder: str) -> dict[str, Shape]:
    stored = FileSystemReader(folder).read_metadata().state_dict_metadata.items()
    return {
        key: tuple(entry.size)
        for key, entry in stored
        if key.startswith(MODEL) and isinstance(entry, TensorStorageMetadata)
    }


def _differences(ours: dict[str, Shape], theirs: dict[str, Shape]) -> list[str]:
    missing = [f"{key}: not in the checkpoint" for key in ours.keys() - theirs.keys()]
    extra = [
        f"{key}: in the checkpoint, not in the model"
        for key in theirs.keys() - ours.keys()
        if not key.startswith(_PREDICTION)  # a run need not train what predicts further tokens
    ]
    wrong = [
        f"{key}: {list(theirs[key])} in the checkpoint, {list(ours[key])} in the model"
        for key in ours.keys() & theirs.keys()
        if ours[key] != (theirs[key] if ours[key][0] else (0, *theirs[key][1:]))
    ]
    return sorted(missing + extra + wrong)


def _other_vocabulary(args: Namespace, common: dict[str, Any]) -> list[str]:
    ours = args.hf_architecture["vocab_size"]
    theirs = common.get("vocab_size", ours)
    return [] if ours == theirs else [f"a vocabulary of {theirs} tokens, the model has {ours}"]
