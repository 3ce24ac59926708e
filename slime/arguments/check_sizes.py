"""Checks of sizes that depend on each other: ranks, lengths."""

from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.errors import Problem
from slime.arguments.raw import RawArguments


def check_ranks(args: Namespace) -> Iterator[Problem]:
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
