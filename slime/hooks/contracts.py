"""How every function given by path is called: the published contract of each `--*-path` option."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Contract:
    """A call.

    Attributes:
        positional: Names of the arguments passed by position, as messages show them.
        keywords: Arguments that are always passed by keyword.
        must_be_async: The result is awaited.
    """

    positional: tuple[str, ...]
    keywords: tuple[str, ...] = ()
    must_be_async: bool = False

    def __str__(self) -> str:
        names = [*self.positional, *(f"{name}=..." for name in self.keywords)]
        return f"{'async ' if self.must_be_async else ''}({', '.join(names)})"

    def violation(self, function: Any) -> str | None:
        """What is wrong with `function`; None when it can be called this way."""
        if not callable(function):
            return f"is a {type(function).__name__}, not a function"
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return None  # built-in code without a signature: only the call will tell
        try:
            signature.bind(*self.positional, **dict.fromkeys(self.keywords))
        except TypeError as error:
            return f"cannot be called as {self}: it is {_shown(function, signature)} ({error})"
        if self.must_be_async and not _is_async(function):
            return f"must be a coroutine function: it is {_shown(function, signature)}"
        return None


CONTRACTS: dict[str, Contract] = {
    # rollout
    "rollout_function_path": Contract(("args", "rollout_id", "data_source"), ("evaluation",)),
    "eval_function_path": Contract(("args", "rollout_id", "data_source"), ("evaluation",)),
    "data_source_path": Contract(("args",)),
    "custom_generate_function_path": Contract(
        ("args", "sample", "sampling_params"), must_be_async=True
    ),
    "rollout_sample_hook_path": Contract(("args", "sample")),
    "dynamic_sampling_filter_path": Contract(("args", "samples")),
    "buffer_filter_path": Contract(("args", "rollout_id", "buffer", "num_samples")),
    "rollout_sample_filter_path": Contract(("args", "groups")),
    "rollout_all_samples_process_path": Contract(("args", "groups", "data_source")),
    "rollout_data_postprocess_path": Contract(("args", "samples")),
    "custom_rollout_log_function_path": Contract(
        ("rollout_id", "args", "samples", "metrics", "seconds")
    ),
    "custom_eval_rollout_log_function_path": Contract(("rollout_id", "args", "data", "metrics")),
    # rewards and batches
    "custom_rm_path": Contract(("args", "sample")),
    "custom_reward_post_process_path": Contract(("args", "samples")),
    "custom_convert_samples_to_train_data_path": Contract(("args", "samples")),
    # training
    "custom_model_provider_path": Contract((), ("pre_process", "post_process")),
    "custom_advantage_function_path": Contract(("args", "rollout_data")),
    "custom_loss_function_path": Contract(("args", "batch", "logits", "sum_of_sample_mean")),
    "custom_tis_function_path": Contract(
        ("args",),
        (
            "pg_loss",
            "train_log_probs",
            "rollout_log_probs",
            "loss_masks",
            "total_lengths",
            "response_lengths",
        ),
    ),
    "custom_pg_loss_reducer_function_path": Contract(
        ("total_lengths", "response_lengths", "loss_masks", "calculate_per_token_loss")
    ),
    "custom_megatron_init_path": Contract(("args",)),
    "custom_megatron_before_log_prob_hook_path": Contract(("args", "model", "store_prefix")),
    "custom_megatron_before_train_step_hook_path": Contract(
        ("args", "rollout_id", "step_id", "model", "optimizer", "opt_param_scheduler")
    ),
    "custom_update_weight_post_write_path": Contract(("args", "path")),
}


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with `async def __call__`
    )


def _shown(function: Any, signature: inspect.Signature) -> str:
    prefix = "async " if _is_async(function) else ""
    return f"{prefix}{getattr(function, '__name__', type(function).__name__)}{signature}"
