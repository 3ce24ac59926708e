"""On-policy distillation (arXiv:2306.13649): how likely a teacher's engine finds a response.

`--custom-rm-path slime.rollout.on_policy_distillation.reward_func`, with the teacher's address
(`http://host:port/generate`) in `--rm-url`, and `--custom-reward-post-process-path
slime.rollout.on_policy_distillation.post_process_rewards`. The log-probs go to the trainer as
`teacher_log_probs`, one per response token; what it does with them is up to `--use-opd`.
"""

from argparse import Namespace
from typing import Any

from slime.rollout.errors import RolloutError
from slime.rollout.http_client import post
from slime.samples.packed import as_list, put, stored
from slime.samples.sample import Sample


async def reward_func(args: Namespace, sample: Any, **kwargs: Any) -> Any:
    """Put the teacher's log-probs of the response on the sample; the reward is 0: the signal is in
    them. Takes a list of samples as well (`--group-rm`).

    An engine reports log-probs of given tokens at temperature 1, so the rollout needs it too.

    Raises:
        RolloutError: the teacher did not answer, or its answer is not about these tokens.
    """
    if isinstance(sample, list):
        return [await reward_func(args, one, **kwargs) for one in sample]
    tokens = stored(sample, "tokens")
    start = len(tokens) - sample.response_length
    body = {
        "input_ids": tokens,
        "sampling_params": {"temperature": args.rollout_temperature, "max_new_tokens": 0},
        "return_logprob": True,
        # One token earlier: the first entry of an answer has no log-prob.
        "logprob_start_len": max(start - 1, 0),
    }
    answer = await post(sample.metadata.get("rm_url") or args.rm_url, body)
    log_probs = _of_response(sample, answer["meta_info"]["input_token_logprobs"])
    put(sample, "teacher_log_probs", log_probs)
    return 0.0


def _of_response(sample: Sample, entries: list[list[Any]]) -> list[float]:
    """The entries ([log-prob, token, text]) of the response, checked against its tokens."""
    length = sample.response_length
    own = entries[len(entries) - length :] if length else []
    tokens = [entry[1] for entry in own]
    response = as_list(stored(sample, "tokens"))[-length:] if length else []
    if tokens != response or any(e[0] is None for e in own):
        raise RolloutError(
            f"--rm-url: the teacher's log-probs of sample {sample.index} are not those of its "
            f"{length} response tokens; has the teacher another tokenizer?"
        )
    return [float(entry[0]) for entry in own]


def post_process_rewards(
    args: Namespace, samples: list[Sample], **kwargs: Any
) -> tuple[list[float], list[float]]:
    """Raw rewards and those to train on: no reward but the teacher's.

    Raises:
        RolloutError: a sample has no log-probs of the teacher.
    """
    missing = [sample.index for sample in samples if sample.teacher_log_probs is None]
    if missing:
        raise RolloutError(
            f"{len(missing)} of {len(samples)} samples have no log-probs of the teacher "
            f"(samples {missing[:10]}): is --custom-rm-path "
            "slime.rollout.on_policy_distillation.reward_func set?"
        )
    rewards = [float(sample.get_reward_value(args)) for sample in samples]
    return rewards, list(rewards)
