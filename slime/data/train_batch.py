"""From graded samples to what every data-parallel rank trains on."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np

from slime.data.ragged import Ragged
from slime.hooks.loading import load_function
from slime.samples.groups import rollout_identities
from slime.samples.packed import stored
from slime.samples.sample import Sample
from slime.schedules.dp_schedule import build_dp_schedule

TrainData = dict[str, Any]
"""Per-sample lists, all of one length and in the order of the samples."""
RolloutData = dict[str, Any]
"""What one rank trains on: per-sample lists in the order of its partition, and its schedule."""

# What there is of each token becomes one array of a rank, in as few bytes as its values need.
_PER_TOKEN = {
    "tokens": np.int32,
    "loss_masks": np.uint8,
    "rollout_log_probs": np.float32,
    "teacher_log_probs": np.float32,
}
_OPTIONAL = (
    "rollout_log_probs",
    "teacher_log_probs",
    "rollout_top_p_token_ids",
    "rollout_top_p_token_offsets",
    "rollout_routed_experts",
    "multimodal_train_inputs",
    "train_metadata",
)


def convert_samples_to_train_data(
    args: Namespace,
    samples: list[Sample],
    raw_rewards: Sequence[float],
    rewards: Sequence[float],
) -> TrainData:
    """Per-sample lists, or what `--custom-convert-samples-to-train-data-path` makes. Nothing that
    there is of each token is copied yet: `split_by_dp` does that once, rank by rank.

    Returns:
        tokens (prompt + response), total_lengths, response_lengths, loss_masks (0 or 1,
        response only; all zero for removed samples), rewards, raw_reward, truncated (0/1),
        sample_indices, rollout_ids (dense; samples of one rollout share it), weight_versions;
        rollout_log_probs and teacher_log_probs, top-p spans, routed experts and the like
        where the samples have them.

    Raises:
        ValueError: A per-token field is out of step, or only some samples have an optional field.
    """
    if path := getattr(args, "custom_convert_samples_to_train_data_path", None):
        converted: TrainData = load_function(path)(args, samples)
        return converted
    if not len(samples) == len(raw_rewards) == len(rewards) > 0:
        raise ValueError(
            f"{len(samples)} samples, {len(raw_rewards)} raw rewards, {len(rewards)} rewards"
        )
    for sample in samples:
        sample.check_alignment()
    tokens = [stored(sample, "tokens") for sample in samples]
    data: TrainData = {
        "tokens": tokens,
        "total_lengths": [len(ids) for ids in tokens],
        "response_lengths": [sample.response_length for sample in samples],
        "loss_masks": [_loss_mask(sample) for sample in samples],
        "rewards": [float(reward) for reward in rewards],
        "raw_reward": list(raw_rewards),
        "truncated": [int(sample.status is Sample.Status.TRUNCATED) for sample in samples],
        "sample_indices": [sample.index for sample in samples],
        "rollout_ids": rollout_identities(samples),
        "weight_versions": [list(sample.weight_versions) for sample in samples],
    }
    for name in _OPTIONAL:
        values = _optional(samples, name)
        if values is not None:
            data[name] = values
    return data


def split_by_dp(
    args: Namespace, data: TrainData, parallel_config: dict[str, int]
) -> list[RolloutData]:
    """One dict per data-parallel rank: its samples in the order they are trained, and the schedule.

    What there is of each token is a `Ragged`: tokens int32, loss_masks uint8 (float32 if they are
    not whole numbers), log-probs float32. Besides every per-sample list of `data`: partition
    (global positions), micro_batch_indices (over all steps, positions in the partition),
    num_microbatches (per step), global_batch_sizes (per step, rollouts over all ranks),
    global_num_tokens (per step, trained tokens over all ranks).

    Args:
        args: As for `build_dp_schedule`; global_batch_size None means one step.
        data: From `convert_samples_to_train_data`.
        parallel_config: As for `build_dp_schedule`.

    Raises:
        ValueError: The samples do not fit the schedule, or a list has another length than `tokens`.
    """
    num_samples = len(data["tokens"])
    # A custom conversion may leave these out: every sample is then a rollout of its own.
    derived: TrainData = {
        "total_lengths": [len(tokens) for tokens in data["tokens"]],
        "rollout_ids": list(range(num_samples)),
    }
    data = derived | data
    for name, values in data.items():
        if len(values) != num_samples:
            raise ValueError(f"{name} has {len(values)} entries for {num_samples} samples")
    rollouts = data["rollout_ids"]
    partitions, micro_batch_indices, num_microbatches, batch_sizes = build_dp_schedule(
        args,
        parallel_config,
        data["total_lengths"],
        global_batch_size=args.global_batch_size or len(set(rollouts)),
        rollout_indices=rollouts,
    )
    parts: list[RolloutData] = [
        {name: _of_rank(name, values, partition) for name, values in data.items()}
        for partition in partitions
    ]
    step_tokens = [0.0] * len(num_microbatches)
    for part, micro_batches in zip(parts, micro_batch_indices, strict=True):
        trained = part["loss_masks"].sums()
        for step, members in zip(_step_numbers(num_microbatches), micro_batches, strict=True):
            step_tokens[step] += float(trained[members].sum())
    for part, partition, micro_batches in zip(parts, partitions, micro_batch_indices, strict=True):
        part |= {
            "partition": partition,
            "micro_batch_indices": micro_batches,
            "num_microbatches": num_microbatches,
            "global_batch_sizes": batch_sizes,
            "global_num_tokens": step_tokens,
        }
    return parts


def _of_rank(name: str, values: Sequence[Any], partition: list[int]) -> Any:
    chosen = [values[i] for i in partition]
    return Ragged.from_lists(chosen, _PER_TOKEN[name]) if name in _PER_TOKEN else chosen


def _step_numbers(num_microbatches: Sequence[int]) -> list[int]:
    """The step of each of a rank's micro-batches."""
    return [step for step, count in enumerate(num_microbatches) for _ in range(count)]


def _loss_mask(sample: Sample) -> Any:
    if sample.remove_sample:
        return np.zeros(sample.response_length, dtype=np.uint8)
    mask = stored(sample, "loss_mask")
    return np.ones(sample.response_length, dtype=np.uint8) if mask is None else mask


def _optional(samples: list[Sample], name: str) -> list[Any] | None:
    """The field of every sample; None when no sample has it."""
    values = [stored(sample, name) for sample in samples]
    missing = [sample.index for sample, value in zip(samples, values, strict=True) if value is None]
    if len(missing) == len(samples):
        return None
    # Metadata and media differ from sample to sample; what is computed per token must be there for
    # all.
    if missing and name not in ("train_metadata", "multimodal_train_inputs"):
        raise ValueError(
            f"{name}: {len(missing)} of {len(samples)} samples have none: {missing[:10]}"
        )
    return values
