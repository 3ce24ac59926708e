"""Sampling parameters in SGLang's names, and how many tokens a response may still get."""

from argparse import Namespace
from typing import Any

from slime.samples.packed import stored
from slime.samples.sample import Sample


def train_sampling_params(args: Namespace) -> dict[str, Any]:
    """The rollout's options as the `sampling_params` of a /generate request."""
    return {
        "temperature": args.rollout_temperature,
        "top_p": args.rollout_top_p,
        "top_k": args.rollout_top_k,
        "max_new_tokens": args.rollout_max_response_len,
        "stop": args.rollout_stop,
        "stop_token_ids": args.rollout_stop_token_ids,
        "skip_special_tokens": args.rollout_skip_special_tokens,
        "no_stop_trim": True,
        "spaces_between_special_tokens": False,
    }


def is_seeded(args: Namespace) -> bool:
    """Whether requests carry seeds of their own: `--sglang-enable-deterministic-inference`."""
    return bool(args.sglang_server_args.get("enable_deterministic_inference"))


def seeded(args: Namespace, sample: Sample, sampling_params: dict[str, Any]) -> dict[str, Any]:
    """The parameters, with a `sampling_seed` if requests carry one.

    It follows from `--rollout-seed` and the sample's number in the run: the same tokens, whichever
    engine generates them and whenever. A seed that is already there stays.
    """
    if not is_seeded(args):
        return sampling_params
    seed = ((int(args.rollout_seed) << 32) + (sample.index or 0)) % 2**63
    return {"sampling_seed": seed, **sampling_params}


def max_context_len(args: Namespace, evaluation: bool = False) -> int:
    """Most tokens of prompt and response together: what is asked for, at most what the model
    has."""
    asked = (evaluation and args.eval_max_context_len) or args.rollout_max_context_len
    limit = int(args.hf_architecture["max_position_embeddings"])
    return min(int(asked), limit) if asked else limit


def remaining_new_tokens(sample: Sample, max_new_tokens: int | None, context_len: int) -> int:
    """Tokens the response may still get, never negative.

    A continued response has used up a part of `max_new_tokens`; `sample.tokens` holds prompt and
    response, which together must not exceed `context_len`.
    """
    room = context_len - len(stored(sample, "tokens"))
    if max_new_tokens is not None:
        room = min(room, max_new_tokens - sample.response_length)
    return max(room, 0)
