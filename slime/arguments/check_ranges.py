"""Ranges of single numbers.

They are looked at before anything is derived, so that resolution and the other checks work with
numbers that mean something.
"""

from collections.abc import Iterator
from copy import deepcopy
from math import isinf, isnan

from slime.arguments.errors import Problem, option
from slime.arguments.raw import RawArguments, located
from slime.arguments.registry import all_flags, flags_by_key

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
        "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank",
        "microbatch_group_size_per_virtual_pipeline_stage",
        "decoder_first_pipeline_num_layers",
        "decoder_last_pipeline_num_layers",
        "num_distributed_optimizer_instances",
        "ddp_bucket_size",
        "recompute_num_layers",
        "moe_router_topk",
        "moe_router_num_groups",
        "moe_router_group_topk",
        "rollout_batch_size",
        "n_samples_per_prompt",
        "n_samples_per_eval_prompt",
        "num_steps_per_rollout",
        "micro_batch_size",
        "global_batch_size",
        "num_rollout",
        "num_epoch",
        "eval_interval",
        "save_interval",
        "update_weights_interval",
        "update_weight_buffer_size",
        "ref_update_interval",
        "lr_decay_iters",
        "max_tokens_per_gpu",
        "log_probs_max_tokens_per_gpu",
        "data_pad_size_multiplier",
        "make_vocab_size_divisible_by",
        "rollout_max_context_len",
        "rollout_max_prompt_len",
        "rollout_max_response_len",
        "eval_max_context_len",
        "eval_max_prompt_len",
        "eval_max_response_len",
        "seq_length",
        "sglang_server_concurrency",
        "rollout_stall_timeout",
        "train_stall_timeout",
        "distributed_timeout_minutes",
        "loss_scale_window",
        "hysteresis",
        "log_interval",
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
        "lr_warmup_init",
        "lr_wsd_decay_iters",
        "weight_decay",
        "start_weight_decay",
        "end_weight_decay",
        "loss_scale",
        "initial_loss_scale",
        "min_loss_scale",
        "moe_aux_loss_coeff",
        "moe_z_loss_coeff",
        "mtp_num_layers",
        "mtp_loss_scaling_factor",
        "eval_min_new_tokens",
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
        "sgd_momentum",
        "load_debug_rollout_data_subsample",
        "lr_warmup_fraction",
        "min_batch_collection_ratio",
    ),
}


def refuse_out_of_range(raw: RawArguments) -> list[Problem]:
    """A problem for every given number that means nothing; in `raw` it becomes the default again,
    as a value that could not be read.
    """
    problems: dict[str, Problem] = {}  # the first one of each option
    for problem in _out_of_range(raw):
        if raw.given(_dest(problem)):
            problems.setdefault(problem.option, located(problem, raw))
    for problem in problems.values():
        flag, _ = flags_by_key()[_dest(problem)]
        raw.values[flag.dest] = deepcopy(flag.default)
        del raw.origins[flag.dest]
        raw.failed.add(problem.option)
    return list(problems.values())


def _dest(problem: Problem) -> str:
    return problem.option.removeprefix("--").replace("-", "_")


def _out_of_range(raw: RawArguments) -> Iterator[Problem]:
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
        yield Problem("--log-probs-chunk-size", value, "must be -1 (what fits) or at least 1")
    for name in ("rollout_top_k", "eval_top_k"):
        value = raw.values[name]
        if value is not None and value != -1 and value < 1:
            yield Problem(option(name), value, "must be -1 (all tokens) or at least 1")
    for name in ("rollout_top_p", "eval_top_p"):
        if raw.values[name] == 0:
            yield Problem(option(name), 0.0, "keeps no token", "give a number above 0, at most 1")


def _check_finite(raw: RawArguments) -> Iterator[Problem]:
    """No number is NaN, and only bounds, such as those of clipping, may be infinite."""
    for flag in all_flags():
        name, value = flag.dest, raw.values[flag.dest]
        may_be_infinite = "clip" in name or name == "opsm_delta"
        if isinstance(value, float) and (isnan(value) or (isinf(value) and not may_be_infinite)):
            yield Problem(option(name), value, "must be a finite number")
