"""What is asked of an engine for a sample, and what its answer puts on the sample."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np

from slime.rollout.errors import RolloutError
from slime.samples.packed import put, stored
from slime.samples.sample import Sample


def get_model_url(args: Namespace, model_name: str, endpoint: str = "/generate") -> str:
    """Address of a model's router. `args.sglang_model_routers` maps names to (host, port); without
    it there is one router for everything.

    Raises:
        ValueError: no model of that name.
    """
    routers = getattr(args, "sglang_model_routers", None)
    if not routers:
        return f"http://{args.sglang_router_ip}:{args.sglang_router_port}{endpoint}"
    if model_name not in routers:
        raise ValueError(f"no model named {model_name!r}; there are {', '.join(sorted(routers))}")
    host, port = routers[model_name]
    return f"http://{host}:{port}{endpoint}"


def router_urls(args: Namespace) -> list[str]:
    """The routers of all models, each once."""
    routers = getattr(args, "sglang_model_routers", None) or {"": None}
    return list(dict.fromkeys(get_model_url(args, name, "") for name in routers))


def check_vocabulary(args: Namespace, sample: Sample) -> None:
    """Refuse token ids the model does not have: one of them ends an engine.

    Raises:
        RolloutError: names the sample, the id and its position.
    """
    size = int(args.hf_architecture["vocab_size"])
    tokens = np.asarray(stored(sample, "tokens"))
    if outside := np.flatnonzero((tokens < 0) | (tokens >= size)).tolist():
        at, token = outside[0], tokens[outside[0]]
        raise RolloutError(
            f"sample {sample.index} has token id {token} at position {at}, but the vocabulary of "
            f"{args.hf_checkpoint} has {size} tokens"
        )


def mask_earlier_tokens(args: Namespace, sample: Sample) -> None:
    """With `--mask-offpolicy-in-partial-rollout`: do not train on the tokens that a sample brings
    from the rollout in which it was aborted."""
    was_aborted = sample.status == Sample.Status.ABORTED and sample.response_length
    if args.partial_rollout and args.mask_offpolicy_in_partial_rollout and was_aborted:
        put(sample, "loss_mask", np.zeros(sample.response_length, dtype=np.uint8))


def payload(
    args: Namespace, input_ids: Sequence[Any] | np.ndarray, params: dict[str, Any]
) -> dict[str, Any]:
    """Body of a /generate request for one prompt or for several; log-probs of the new tokens come
    along, and with `--use-rollout-routing-replay` the experts of all tokens."""
    body = {"input_ids": input_ids, "sampling_params": params, "return_logprob": True}
    return body | ({"return_routed_experts": True} if args.use_rollout_routing_replay else {})


def headers(sample: Sample) -> dict[str, str] | None:
    """With a session id, the router can send all turns of a session to one engine."""
    return {"x-smg-routing-key": sample.session_id} if sample.session_id else None


def record(args: Namespace, sample: Sample, answer: dict[str, Any]) -> None:
    """Append an answer's tokens, log-probs, text, status and weight versions to the sample."""
    meta_info = answer["meta_info"]
    if meta_info.get("output_token_logprobs") is None:  # it was aborted before its first token
        meta_info = meta_info | {"output_token_logprobs": []}
    sample.append_response_tokens(args, meta_info=meta_info, text=answer["text"])


def fail(sample: Sample, reason: object) -> None:
    """Mark a sample that could not be generated; the reason is kept in its metadata."""
    sample.status = Sample.Status.FAILED
    sample.metadata["failure"] = str(reason)
