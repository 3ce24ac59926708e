"""Options of the published interface that nothing acts on yet: refused, never silently ignored."""

from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.check_family import check_family
from slime.arguments.check_rollout import FULLY_ASYNC
from slime.arguments.errors import Problem, option
from slime.arguments.registry import given_options
from slime.arguments.rollout import DEFAULT_ROLLOUT

# Whoever builds one of these takes it out of the list.
NOT_BUILT = (
    # engines and transport
    "http_proxy",
    "use_distributed_post",
    "rollout_buffer_url",
    # trainer
    "allgather_cp",
    "megatron_deepgemm_forward_layers",
    "megatron_deepgemm_forward_modules",
    "megatron_deepgemm_moe_forward_layers",
    "megatron_deepgemm_moe_forward_modules",
    "use_persistent_ckpt_worker",
    "ckpt_fully_parallel_load",
    "dist_ckpt_strictness",
)
# Values of options whose other values work.
NOT_BUILT_VALUES = {
    "rollout_data_transport": ("nixl",),
}
# Settings of an evaluation set that only somebody's own functions read.
NOT_BUILT_OF_EVAL_SETS = (
    "app_service",
    "eval_task_timeout",
    "min_eval_samples",
    "eval_early_stop_remaining",
    "eval_early_stop_idle_timeout",
    "message_processor",
    "reward_model",
    "remote_environment",
)
_MESSAGE = "is not built yet: this version would do nothing about it"


def check_built(args: Namespace) -> Iterator[Problem]:
    """Given options without an effect, and models that the trainer cannot convert.

    Apart from `validate`: what is planned for these options is right and tested already, so they
    are refused only where a run would start.
    """
    given = given_options(args)
    for dest in NOT_BUILT:
        if dest in given:
            yield Problem(option(dest), given[dest], _MESSAGE, "leave it out")
    for dest, values in NOT_BUILT_VALUES.items():
        if getattr(args, dest) in values:
            kept = "leave it out, or give another value"
            yield Problem(option(dest), getattr(args, dest), _MESSAGE, kept)
    yield from _check_eval_sets(args)
    yield from _check_served(args)
    yield from _check_top_p(args)
    yield from check_family(args)


def _check_eval_sets(args: Namespace) -> Iterator[Problem]:
    ours = args.eval_function_path in (DEFAULT_ROLLOUT, FULLY_ASYNC)
    for dataset in args.eval_datasets:
        own = dataset.custom_generate_function_path or dataset.custom_rm_path
        for name in NOT_BUILT_OF_EVAL_SETS if ours and not own else ():
            if (value := getattr(dataset, name)) is not None:
                place = f"evaluation data {dataset.name}: {name}"
                yield Problem(place, value, _MESSAGE, "leave it out")


def _check_served(args: Namespace) -> Iterator[Problem]:
    """SGLang gives every layer of a Qwen3 with experts its experts, also where config.json says
    that a layer has none; what such a layer would generate with is random."""
    config = args.hf_architecture or {}
    dense = config.get("mlp_only_layers") or config.get("decoder_sparse_step", 1) != 1
    if config.get("model_type") == "qwen3_moe" and dense and not args.debug_train_only:
        message = "has dense layers among those with experts, which SGLang's engines ignore"
        yield Problem("--hf-checkpoint", args.hf_checkpoint, message, "give another model")


def _check_top_p(args: Namespace) -> Iterator[Problem]:
    """The loss needs the tokens that nucleus sampling kept; SGLang's engines do not name them."""
    own = args.custom_generate_function_path or args.rollout_function_path != DEFAULT_ROLLOUT
    trains = args.loss_type == "policy_loss" and not args.debug_rollout_only
    if args.rollout_top_p != 1 and trains and not (own or args.debug_train_only):
        message = "the engines do not say which tokens they kept, and training needs their ids"
        remedy = "give 1, or a --custom-generate-function-path that puts them on the samples"
        yield Problem("--rollout-top-p", args.rollout_top_p, message, remedy)
