"""Streamed responses: tokens are put on the sample as the engine makes them.

`--custom-generate-function-path slime.rollout.sglang_streaming_rollout.generate_streaming`.
Whatever ends a stream (an abort, a cancelled task, an engine that dies), the sample keeps the
tokens that had come, with their log-probs. After a broken connection the rest is asked for: no
token comes twice.
"""

import asyncio
import random
import time
from argparse import Namespace
from typing import Any

from slime.rollout import engine_requests, http_client
from slime.rollout.errors import RolloutError
from slime.rollout.generate_state import GenerateState
from slime.rollout.sampling import max_context_len, remaining_new_tokens
from slime.rollout.tokenizer import encode_prompt
from slime.samples.meta_info import finish_type
from slime.samples.packed import put, stored
from slime.samples.sample import Sample

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_GROWING = ("tokens", "response", "response_length", "loss_mask", "rollout_log_probs")


async def generate_streaming(
    args: Namespace, sample: Sample, sampling_params: dict[str, Any]
) -> Sample:
    """Generate a response, or the rest of one, piece by piece.

    The sample ends as COMPLETED, TRUNCATED, ABORTED (continue it later), or FAILED with
    `metadata["failure"]` when streams kept breaking for `http_client.RETRY_SECONDS`.

    Raises:
        asyncio.CancelledError: the task was cancelled; the sample is ABORTED, with what it has.
    """
    if not len(stored(sample, "tokens")):
        put(sample, "tokens", encode_prompt(GenerateState(args).tokenizer, sample))
    engine_requests.mask_earlier_tokens(args, sample)
    pause, first_failure = _FIRST_PAUSE_SECONDS, None
    while True:
        length = sample.response_length
        try:
            engine_requests.check_vocabulary(args, sample)
            return await _stream_rest(args, sample, sampling_params)
        except RolloutError as error:
            engine_requests.fail(sample, error)
            return sample
        except ConnectionError as error:
            cause = error
        except asyncio.CancelledError:
            sample.status = Sample.Status.ABORTED
            raise
        url = engine_requests.get_model_url(args, "default")
        if http_client.check_liveness(url) or sample.response_length > length:
            pause, first_failure = _FIRST_PAUSE_SECONDS, None  # in repair; or it went on
        first_failure = first_failure or time.monotonic()
        if time.monotonic() - first_failure + pause > http_client.RETRY_SECONDS:
            engine_requests.fail(sample, f"the stream of sample {sample.index} broke: {cause}")
            return sample
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


async def _stream_rest(args: Namespace, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    """One stream; raises ConnectionError when it breaks."""
    new_tokens = remaining_new_tokens(
        sample, sampling_params.get("max_new_tokens"), max_context_len(args)
    )
    if new_tokens == 0:
        sample.status = Sample.Status.TRUNCATED
        return sample
    params = {**sampling_params, "max_new_tokens": new_tokens}
    body = engine_requests.payload(args, stored(sample, "tokens"), params) | {"stream": True}
    url = engine_requests.get_model_url(args, "default")
    state, call = GenerateState(args), _Call(args, sample)
    try:
        with state.engines_busy, state.progress.waiting_for(f"the response of {sample.index}"):
            async for event in http_client.stream(url, body, engine_requests.headers(sample)):
                call.take(event)
    finally:
        if not call.finished:
            call.keep_what_came()
    if not call.finished:
        raise ConnectionError("the stream ended before the response did")
    return sample


class _Call:
    """One streamed call. Its events hold everything so far, or only what is new (engines with
    `--sglang-incremental-streaming-output`)."""

    def __init__(self, args: Namespace, sample: Sample) -> None:
        self.finished = False
        self._args, self._sample = args, sample
        self._before = {name: vars(sample)[name] for name in _GROWING}
        self._entries: list[list[Any]] = []
        self._text = ""
        self._version: str | None = None

    def take(self, event: dict[str, Any]) -> None:
        """Put the new tokens of an event on the sample."""
        meta_info, sample = event["meta_info"], self._sample
        entries = meta_info.get("output_token_logprobs") or []
        total = int(meta_info["completion_tokens"])
        new = entries[len(entries) - (total - len(self._entries)) :]
        self._text = event["text"] if len(entries) == total else self._text + event["text"]
        self._entries += new if total > len(self._entries) else []
        self._version = meta_info.get("weight_version")
        self.finished = finish_type(meta_info) is not None
        if self.finished:  # the report is of the whole call: record it as one
            self._put_back()
            whole = {**meta_info, "output_token_logprobs": self._entries}
            answer = {"meta_info": whole, "text": self._text}
            engine_requests.record(self._args, sample, answer)
        elif new:
            tokens, log_probs = [entry[1] for entry in new], [entry[0] for entry in new]
            sample.append_response_tokens(self._args, tokens=tokens, log_probs=log_probs)
            sample.response = self._before["response"] + self._text

    def keep_what_came(self) -> None:
        """The stream broke: note which weights made the tokens that had come."""
        if self._entries:
            report = {"weight_version": self._version, "completion_tokens": len(self._entries)}
            self._sample.append_response_tokens(
                self._args, tokens=[], log_probs=[], meta_info=report
            )

    def _put_back(self) -> None:
        for name, value in self._before.items():
            setattr(self._sample, name, value)
