"""Checks of sizes: ranges of single numbers, ranks, lengths."""

from argparse import Namespace
from collections.abc import Iterator
from math import isfinite, isinf, isnan

from slime.arguments.errors import Problem, option
from slime.arguments.raw import RawArguments
from slime.arguments.registry import all_flags

_INFINITY = float("inf")

# Attributes that must lie in [low, high]; unset ones (None) are left alone.
_RANGES: dict[tuple[float, float], tuple[str, ...]] = {
    (1, _INFINITY): (
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "expert_tensor_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "rollout_batch_size",
        "n_samples_per_prompt",
        "n_samples_per_eval_prompt",
        "num_steps_per_rollout",
        "micro_batch_size",
        "num_rollout",
        "num_epoch",
        "eval_interval",
        "save_interval",
        "update_weights_interval",
        "update_weight_buffer_size",
        "ref_update_interval",
        "max_tokens_per_gpu",
        "log_probs_max_tokens_per_gpu",
        "data_pad_size_multiplier",
        "make_vocab_size_divisible_by",
        "rollout_max_context_len",
        "rollout_max_prompt_len",
        "rollout_max_response_len",
        "eval_max_response_len",
        "sglang_server_concurrency",
        "rollout_stall_timeout",
        "train_stall_timeout",
        "distributed_timeout_minutes",
    ),
    (0, _INFINITY): (
        "eps_clip",
        "eps_clip_high",
        "value_clip",
        "tis_clip",
        "tis_clip_low",
        "lr",
        "min_lr",
        "lr_warmup_iters",
        "weight_decay",
        "clip_grad",
        "adam_eps",
        "num_critic_only_steps",
        "start_rollout_id",
        "eval_temperature",
        "rollout_temperature",
        "rollout_abort_grace",
        "max_weight_lag",
        "rollout_health_check_first_wait",
        "opsm_delta",
    ),
    # Each is a process or a thread of the plan; torch and numpy take seeds of 32 bits.
    (1, 100_000): (
        "actor_num_nodes",
        "actor_num_gpus_per_node",
        "critic_num_nodes",
        "critic_num_gpus_per_node",
        "rollout_num_gpus",
        "rollout_num_gpus_per_engine",
        "num_gpus_per_node",
        "engine_threads",
        "train_threads",
    ),
    (0, 2**32 - 1): (
        "seed",
        "rollout_seed",
    ),
    (0, 1): (
        "gamma",
        "lambd",
        "rollout_top_p",
        "eval_top_p",
        "attention_dropout",
        "hidden_dropout",
        "adam_beta1",
        "adam_beta2",
        "load_debug_rollout_data_subsample",
        "lr_warmup_fraction",
        "min_batch_collection_ratio",
    ),
}


def check_ranges(raw: RawArguments) -> Iterator[Problem]:
    """Given numbers outside the range in which they mean something."""
    for (low, high), names in _RANGES.items():
        for name in names:
            value = raw.values[name]
            if value is not None and not low <= value <= high:
                wanted = (
                    f"at least {low:g}" if high == _INFINITY else f"between {low:g} and {high:g}"
                )
                yield Problem(option(name), value, f"must be {wanted}")
    for name in ("rollout_health_check_interval", "rollout_health_check_timeout"):
        if not raw.values[name] > 0:
            yield Problem(option(name), raw.values[name], "must be above 0")
    yield from _check_finite(raw)
    if raw.values["log_probs_chunk_size"] != -1 and raw.values["log_probs_chunk_size"] < 1:
        value = raw.values["log_probs_chunk_size"]
        yield Problem("--log-probs-chunk-size", value, "must be -1 (all tokens) or at least 1")
    for name in ("rollout_top_k", "eval_top_k"):
        value = raw.values[name]
        if value is not None and value != -1 and value < 1:
            yield Problem(option(name), value, "must be -1 (all tokens) or at least 1")
    for name in ("rollout_top_p", "eval_top_p"):
        if raw.values[name] == 0:
            yield Problem(option(name), 0.0, "keeps no token", "give a number above 0, at most 1")


def _check_finite(raw: RawArguments) -> Iterator[Problem]:
    """No number is NaN, and only bounds, such as those of clipping, may be infinite."""
    ranged = {name for names in _RANGES.values() for name in names}
    for flag in all_flags():
        name, value = flag.dest, raw.values[flag.dest]
        if not isinstance(value, float) or isfinite(value):
            continue
        unbounded = "clip" in name or name == "opsm_delta"
        if (isnan(value) and name not in ranged) or (isinf(value) and not unbounded):
            yield Problem(option(name), value, "must be a finite number")


def check_ranks(args: Namespace, raw: RawArguments) -> Iterator[Problem]:
    """World size against the parallel layout."""
    world, model = args.world_size, args.model_parallel_size
    shown = f"{args.actor_num_nodes} x {args.actor_num_gpus_per_node} ranks"
    if world % model:
        yield Problem(
            "--actor-num-gpus-per-node",
            shown,
            f"{world} ranks cannot be split into model replicas of {model} "
            f"(tensor {args.tensor_model_parallel_size} x pipeline "
            f"{args.pipeline_model_parallel_size}"
            f" x context {args.context_parallel_size})",
            f"give a multiple of {model} ranks, or smaller parallel sizes",
        )
    experts = (
        args.expert_model_parallel_size
        * args.expert_tensor_parallel_size
        * args.pipeline_model_parallel_size
    )
    if args.num_experts and world % experts:
        yield Problem(
            "--expert-model-parallel-size",
            args.expert_model_parallel_size,
            f"{world} ranks cannot be split by expert {args.expert_model_parallel_size} x "
            "expert tensor "
            f"{args.expert_tensor_parallel_size} x pipeline {args.pipeline_model_parallel_size}",
            f"give a multiple of {experts} ranks, or smaller parallel sizes",
        )


def check_lengths(args: Namespace, raw: RawArguments) -> Iterator[Problem]:
    """Prompt and response against the context and the model's limit."""
    limit, context = args.max_position_embeddings, args.rollout_max_context_len
    for prefix in ("rollout", "eval"):
        total = getattr(args, f"{prefix}_max_context_len")
        if (
            limit is not None
            and total is not None
            and total > limit
            and raw.given(f"{prefix}_max_context_len")
        ):
            message = f"the model has {limit} positions"
            yield Problem(f"--{prefix}-max-context-len", total, message, f"give at most {limit}")
    response, prompt = args.rollout_max_response_len, args.rollout_max_prompt_len
    if response is None:
        if not args.debug_train_only and not raw.given("rollout_max_context_len"):
            yield Problem(
                "--rollout-max-response-len", None, "needed", "say how long a response may be"
            )
    elif context is not None and response >= context:
        message = f"leaves no room for a prompt: prompt and response together have {context} tokens"
        yield Problem("--rollout-max-response-len", response, message, f"give less than {context}")
    elif context is not None and prompt is not None and prompt + response > context:
        message = (
            f"with --rollout-max-response-len {response} that is more than the {context} tokens "
            "of a sequence"
        )
        yield Problem(
            "--rollout-max-prompt-len", prompt, message, f"give at most {context - response}"
        )
