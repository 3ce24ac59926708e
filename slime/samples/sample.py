"""`Sample`: one prompt with one response and everything that is known about it.

The per-token fields are aligned with the response: `loss_mask`, `rollout_log_probs` and the top-p
spans have one entry per response token, `rollout_routed_experts` has one row per token but the last
of prompt + response. `append_response_tokens` keeps them so; `check_alignment` says what is wrong
where other code wrote them.
"""

import copy
import dataclasses
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from slime.samples import alignment, packed
from slime.samples.meta_info import (
    Span,
    finish_type,
    output_tokens_and_log_probs,
    weight_version_spans,
)

RolloutBatch = dict[str, Any]
"""Per-sample lists of one DP rank (tokens, loss_masks, rewards, ...), see
`slime.data.train_batch`.
"""


@dataclass(frozen=True)
class ParamInfo:
    """What the weight update must know of one parameter; `dtype` and `shape` are torch's."""

    name: str
    dtype: Any
    shape: Any
    attrs: dict[str, Any]
    size: int
    src_rank: int


@dataclass
class Sample:
    """One response to one prompt.

    Identity: samples of one prompt share `group_index`; samples of one trajectory (a rollout that
        fans out into
    several samples) share `rollout_id`; `index` is unique over the run. `tokens` is prompt +
    response, `response_length` counts the response's tokens.
    """

    @dataclass
    class SpecInfo:
        """Counts of speculative decoding, summed over the calls that made a sample."""

        spec_accept_token_num: int = 0
        spec_draft_token_num: int = 0
        spec_verify_ct: int = 0
        completion_token_num: int = 0

        def add(self, meta_info: dict[str, Any]) -> None:
            """Add the counts of one finished call."""
            self.spec_accept_token_num += meta_info.get("spec_num_correct_drafts", 0)
            self.spec_draft_token_num += meta_info.get("spec_num_proposed_drafts", 0)
            self.spec_verify_ct += meta_info.get("spec_verify_ct", 0)
            self.completion_token_num += meta_info.get("completion_tokens", 0)

    @dataclass
    class PrefixCacheInfo:
        """Prompt tokens an engine found in its prefix cache, summed over the calls that made a
        sample.
        """

        cached_tokens: int = 0
        total_prompt_tokens: int = 0

        def add(self, meta_info: dict[str, Any]) -> None:
            """Add the counts of one finished call."""
            self.cached_tokens += meta_info.get("cached_tokens", 0)
            self.total_prompt_tokens += meta_info.get("prompt_tokens", 0)

    class Status(Enum):
        """Where a sample is on its way."""

        PENDING = "pending"
        COMPLETED = "completed"
        TRUNCATED = "truncated"
        ABORTED = "aborted"
        FAILED = "failed"

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    prompt: str | list[dict[str, str]] = ""
    tokens: list[int] = field(default_factory=list)
    multimodal_inputs: dict[str, Any] | None = None
    multimodal_train_inputs: dict[str, Any] | None = None
    multimodal_train_input_id: str | None = None
    apply_chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    response: str = ""
    response_length: int = 0
    label: str | None = None
    reward: float | dict[str, Any] | None = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    rollout_top_p_token_ids: list[int] | np.ndarray | None = None
    rollout_top_p_token_offsets: list[int] | np.ndarray | None = None
    rollout_routed_experts: list[list[int]] | np.ndarray | None = None
    remove_sample: bool = False
    teacher_log_probs: list[float] | None = None
    status: Status = Status.PENDING
    metadata: dict[str, Any] = field(default_factory=dict)
    generate_function_path: str | None = None
    custom_rm_path: str | None = None
    train_metadata: dict[str, Any] | None = None
    session_id: str | None = None
    non_generation_time: float = 0.0
    spec_info: SpecInfo = field(default_factory=SpecInfo)
    prefix_cache_info: PrefixCacheInfo = field(default_factory=PrefixCacheInfo)
    weight_version_spans: list[Span] = field(default_factory=list)
    """(version, start, end) over the response's tokens; tokens of an environment belong to no
    span.
    """

    def to_dict(self) -> dict[str, Any]:
        """Every field, and every other attribute set on the sample, as plain values (arrays stay
        arrays).
        """
        data = dict(vars(self))
        for name, value in vars(self).items():
            if isinstance(value, packed.Packed):
                data[name] = packed.as_list(value)
        data["status"] = self.status.value
        data["spec_info"] = dataclasses.asdict(self.spec_info)
        data["prefix_cache_info"] = dataclasses.asdict(self.prefix_cache_info)
        data["weight_version_spans"] = [list(span) for span in self.weight_version_spans]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Sample":
        """The inverse of `to_dict`; unknown keys become attributes, so they survive the round
        trip.
        """
        values = dict(data)
        values["status"] = cls.Status(values.get("status", cls.Status.PENDING))
        if isinstance(values.get("spec_info"), dict):
            values["spec_info"] = cls.SpecInfo(**values["spec_info"])
        if isinstance(values.get("prefix_cache_info"), dict):
            values["prefix_cache_info"] = cls.PrefixCacheInfo(**values["prefix_cache_info"])
        if "weight_version_spans" in values:
            spans = values["weight_version_spans"]
            values["weight_version_spans"] = [(str(v), int(a), int(b)) for v, a, b in spans]
        known = {f.name for f in dataclasses.fields(cls)}
        sample = cls(**{key: value for key, value in values.items() if key in known})
        for key in values.keys() - known:
            setattr(sample, key, values[key])
        return sample

    def as_handed_out(self) -> "Sample":
        """The sample without anything that generation added."""
        return Sample(
            group_index=self.group_index,
            index=self.index,
            rollout_id=self.rollout_id,
            prompt=copy.deepcopy(self.prompt),
            multimodal_inputs=self.multimodal_inputs,
            apply_chat_template_kwargs=dict(self.apply_chat_template_kwargs),
            label=self.label,
            metadata=copy.deepcopy(self.metadata),
            generate_function_path=self.generate_function_path,
            custom_rm_path=self.custom_rm_path,
        )

    def get_reward_value(self, args: Any) -> float:
        """The number to train on: `reward`, or its entry `args.reward_key`.

        Raises:
            ValueError: `reward` is a dict and `--reward-key` names none of its entries.
        """
        key = getattr(args, "reward_key", None)
        if isinstance(self.reward, dict):
            if key not in self.reward:
                raise ValueError(
                    f"--reward-key = {key!r}: the reward of sample {self.index} is a dict; "
                    f"name one of its keys: {'/'.join(map(str, self.reward))}"
                )
            value: float = self.reward[key]
            return value
        if key is not None:
            raise ValueError(
                f"--reward-key = {key!r}: the reward of sample {self.index} is {self.reward!r}, "
                "no dict; leave the option out"
            )
        return self.reward  # type: ignore[return-value]  # None until it is graded

    @property
    def effective_response_length(self) -> int:
        """Number of response tokens that are trained on."""
        mask = packed.stored(self, "loss_mask")
        if isinstance(mask, np.ndarray):
            return int(mask.sum())
        return self.response_length if mask is None else int(sum(mask))

    def check_alignment(self) -> None:
        """Raise ValueError naming the field and both lengths when a per-token field is out of
        step.
        """
        alignment.check(self)

    def append_response_tokens(
        self,
        args: Any = None,
        *,
        tokens: list[int] | None = None,
        log_probs: list[float] | None = None,
        trainable: bool = True,
        meta_info: dict[str, Any] | None = None,
        text: str | None = None,
        update_terminal_info: bool = True,
    ) -> None:
        """Append tokens to the response and keep every per-token field aligned.

        Args:
            args: Resolved arguments; read only for the shape of routed experts (num_layers,
                moe_router_topk).
            tokens: The tokens; taken from `meta_info["output_token_logprobs"]` when left out.
            log_probs: One per token; taken from `meta_info` as well.
            trainable: False for tokens of an environment or a tool: loss mask 0, log-prob 0.
            meta_info: The engine's report of the call that made the tokens.
            text: Appended to `response`.
            update_terminal_info: Also take status, weight versions and counters from `meta_info`; a
                caller that streams does so only with the last piece.

        Raises:
            ValueError: The lengths disagree, the ids contradict `meta_info`, or trainable tokens
                come without log-probs although the earlier ones have them. The sample is unchanged
                then.
        """
        meta_info = meta_info or {}
        new_tokens, new_log_probs = _resolve_new_tokens(tokens, log_probs, meta_info)
        status = _status_of_finish(meta_info)
        alignment.append(self, args, new_tokens, new_log_probs, trainable, meta_info)
        if text is not None:
            self.response += text
        if meta_info and update_terminal_info:
            self.status = status or self.status
            self._record_call(meta_info, len(new_tokens))

    def _record_call(self, meta_info: dict[str, Any], num_new_tokens: int) -> None:
        """Take weight versions and counters from the report of a finished call."""
        # A caller that streams hands in the report of the whole call with the last piece of its
        # tokens.
        num_call_tokens = max(num_new_tokens, int(meta_info.get("completion_tokens", 0)))
        call_start = self.response_length - min(num_call_tokens, self.response_length)
        for version, start, end in weight_version_spans(meta_info, num_call_tokens):
            span_end = min(call_start + end, self.response_length)
            if call_start + start < span_end:
                self.weight_version_spans.append((version, call_start + start, span_end))
            if not self.weight_versions or self.weight_versions[-1] != version:
                self.weight_versions.append(version)
        self.spec_info.add(meta_info)
        self.prefix_cache_info.add(meta_info)


for _name in packed.FIELDS:
    setattr(Sample, _name, packed.PackedField(_name))

_STATUS_OF_FINISH = {
    "stop": Sample.Status.COMPLETED,
    "length": Sample.Status.TRUNCATED,
    "abort": Sample.Status.ABORTED,
}


def _status_of_finish(meta_info: dict[str, Any]) -> Sample.Status | None:
    finish = finish_type(meta_info)
    if finish is not None and finish not in _STATUS_OF_FINISH:
        raise ValueError(f"finish_reason {finish!r} is none of {sorted(_STATUS_OF_FINISH)}")
    return None if finish is None else _STATUS_OF_FINISH[finish]


def _resolve_new_tokens(
    tokens: list[int] | None, log_probs: list[float] | None, meta_info: dict[str, Any]
) -> tuple[list[int], list[float] | None]:
    """The tokens and log-probs of one append: what is given, completed from `meta_info`."""
    reported = output_tokens_and_log_probs(meta_info)
    if tokens is not None:
        tokens = [int(token) for token in tokens]
        if reported is not None and tokens != reported[0]:
            raise ValueError("`tokens` differ from the ids in meta_info['output_token_logprobs']")
    elif reported is not None:
        tokens = reported[0]
    else:
        raise ValueError("no tokens: neither `tokens` nor meta_info['output_token_logprobs']")
    if log_probs is None and reported is not None:
        log_probs = reported[1]
    if log_probs is not None and len(log_probs) != len(tokens):
        raise ValueError(f"{len(log_probs)} log-probs for {len(tokens)} tokens")
    return tokens, log_probs
