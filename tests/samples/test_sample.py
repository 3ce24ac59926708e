"""`Sample`: alignment of the per-token fields, the reading of meta_info, round trips."""

import base64
import json
from argparse import Namespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.samples.alignment import NOT_RECORDED
from slime.samples.sample import Sample

ARGS = Namespace(num_layers=2, moe_router_topk=3)


def encode(array: np.ndarray) -> str:
    return base64.b64encode(array.astype("<i4").tobytes()).decode()


def meta(ids: list[int], *, finish: str = "stop", **more: object) -> dict:
    return {
        "output_token_logprobs": [[-0.1 * token, token, None] for token in ids],
        "finish_reason": {"type": finish},
        "completion_tokens": len(ids),
        "prompt_tokens": 5,
        "cached_tokens": 2,
        **more,
    }


def test_two_turns_with_a_tool_between() -> None:
    sample = Sample(tokens=[1, 2], prompt="p")
    sample.append_response_tokens(meta_info=meta([10, 11], weight_version="4"), text="ab")
    sample.append_response_tokens(tokens=[99, 5], trainable=False, text="<tool>")
    sample.append_response_tokens(
        meta_info=meta([7], finish="length", weight_version="5"), text="c"
    )
    assert sample.tokens == [1, 2, 10, 11, 99, 5, 7]
    assert sample.response_length == 5 and sample.response == "ab<tool>c"
    assert sample.loss_mask == [1, 1, 0, 0, 1] and sample.effective_response_length == 3
    assert sample.rollout_log_probs == pytest.approx([-1.0, -1.1, 0.0, 0.0, -0.7])
    assert sample.status is Sample.Status.TRUNCATED
    assert sample.weight_versions == ["4", "5"]
    assert sample.weight_version_spans == [("4", 0, 2), ("5", 4, 5)]
    assert sample.prefix_cache_info == Sample.PrefixCacheInfo(4, 10)
    sample.check_alignment()


def test_an_update_in_flight_gives_spans_within_one_call() -> None:
    spans = [{"version": "1", "start": 0, "end": 2}, {"version": "2", "start": 2, "end": 3}]
    sample = Sample(tokens=[1])
    sample.append_response_tokens(tokens=[3], trainable=False)
    sample.append_response_tokens(meta_info=meta([4, 5, 6], weight_versions=spans))
    assert sample.weight_version_spans == [("1", 1, 3), ("2", 3, 4)]
    assert sample.weight_versions == ["1", "2"]


def test_streamed_pieces_count_once_and_spans_cover_the_whole_call() -> None:
    sample = Sample(tokens=[1])
    pieces = [([4, 5], False), ([6], True)]
    for ids, last in pieces:
        sample.append_response_tokens(
            tokens=ids,
            log_probs=[-1.0] * len(ids),
            meta_info={"completion_tokens": 3, "weight_version": "9", "finish_reason": None}
            | ({"finish_reason": {"type": "stop", "matched": 6}} if last else {}),
            update_terminal_info=last,
        )
    assert sample.weight_version_spans == [("9", 0, 3)]
    assert sample.spec_info.completion_token_num == 3
    assert sample.status is Sample.Status.COMPLETED


def test_tool_tokens_first_then_log_probs_are_filled_with_zeros() -> None:
    sample = Sample(tokens=[1])
    sample.append_response_tokens(tokens=[2, 3], trainable=False)
    assert sample.rollout_log_probs is None
    sample.append_response_tokens(tokens=[4], log_probs=[-2.0])
    assert sample.rollout_log_probs == [0.0, 0.0, -2.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"tokens": [3], "log_probs": [-1.0, -2.0]}, "2 log-probs for 1 tokens"),
        ({"tokens": [3]}, "without log-probs"),
        ({"tokens": [4], "meta_info": meta([3])}, "differ from the ids"),
        ({}, "no tokens"),
        ({"meta_info": meta([3], finish="weird")}, "weird"),
        ({"meta_info": meta([3], routed_experts=encode(np.zeros(5))), "args": ARGS}, "5 routed"),
    ],
)
def test_a_refused_append_leaves_the_sample_unchanged(call: dict, message: str) -> None:
    sample = Sample(tokens=[1])
    sample.append_response_tokens(tokens=[2], log_probs=[-1.0], text="x")
    before = sample.to_dict()
    with pytest.raises(ValueError, match=message):
        sample.append_response_tokens(**call, text="y")
    assert sample.to_dict() == before


def test_routed_experts_cover_all_tokens_but_the_last() -> None:
    sample = Sample(tokens=[1, 2])
    first = np.arange(2 * 2 * 3).reshape(2, 2, 3)
    sample.append_response_tokens(ARGS, meta_info=meta([4], routed_experts=encode(first)))
    np.testing.assert_array_equal(sample.rollout_routed_experts, first)
    sample.append_response_tokens(ARGS, tokens=[8, 9], trainable=False)
    np.testing.assert_array_equal(sample.rollout_routed_experts[2:], NOT_RECORDED)
    sample.check_alignment()
    full = np.arange(5 * 2 * 3).reshape(5, 2, 3)
    sample.append_response_tokens(ARGS, meta_info=meta([5], routed_experts=encode(full)))
    np.testing.assert_array_equal(sample.rollout_routed_experts, full)


def test_top_p_spans_of_tool_tokens_are_empty() -> None:
    sample = Sample(tokens=[1])
    report = meta(
        [4, 5],
        output_top_p_token_ids=encode(np.array([4, 6, 5])),
        output_top_p_token_offsets=encode(np.array([0, 2, 3])),
    )
    sample.append_response_tokens(meta_info=report)
    sample.append_response_tokens(tokens=[7], trainable=False)
    sample.append_response_tokens(meta_info=report)
    np.testing.assert_array_equal(sample.rollout_top_p_token_ids, [4, 6, 5, 4, 6, 5])
    np.testing.assert_array_equal(sample.rollout_top_p_token_offsets, [0, 2, 3, 3, 5, 6])
    sample.check_alignment()


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 50), max_size=4), st.booleans()), min_size=1, max_size=6
    )
)
def test_any_sequence_of_appends_stays_aligned(pieces: list[tuple[list[int], bool]]) -> None:
    sample = Sample(tokens=[1, 2, 3])
    expected_mask: list[int] = []
    for ids, trainable in pieces:
        if trainable:
            sample.append_response_tokens(meta_info=meta(ids, weight_version="1"))
        else:
            sample.append_response_tokens(tokens=ids, trainable=False)
        expected_mask += [int(trainable)] * len(ids)
        sample.check_alignment()
    assert sample.loss_mask == expected_mask
    assert sample.tokens[3:] == [token for ids, _ in pieces for token in ids]
    covered = {p for _, start, end in sample.weight_version_spans for p in range(start, end)}
    assert covered == {p for p, kept in enumerate(expected_mask) if kept}


def test_json_round_trip_keeps_unknown_keys_and_set_attributes() -> None:
    sample = Sample(index=3, rollout_id=1, tokens=[1], reward={"score": 0.5}, metadata={"a": [1]})
    sample.append_response_tokens(meta_info=meta([2], weight_version="7"), text="t")
    sample.my_note = "kept"
    data = json.loads(json.dumps(sample.to_dict())) | {"from_the_future": [1, 2]}
    back = Sample.from_dict(data)
    assert back.to_dict() == data
    assert back.my_note == "kept" and back.from_the_future == [1, 2]
    assert back.status is Sample.Status.COMPLETED and back.weight_version_spans == [("7", 0, 1)]
    assert back == sample  # dataclass equality: every published field


def test_reward_value() -> None:
    plain, dict_args = Namespace(reward_key=None), Namespace(reward_key="score")
    assert Sample(reward=0.0).get_reward_value(plain) == 0.0
    assert Sample(reward={"score": 2.0, "acc": 1}).get_reward_value(dict_args) == 2.0
    with pytest.raises(ValueError, match="score/acc/pred"):
        Sample(reward={"score": -1.0, "acc": False, "pred": "0"}).get_reward_value(plain)
    with pytest.raises(ValueError, match="leave the option out"):
        Sample(reward=1.0).get_reward_value(dict_args)


def test_check_alignment_names_the_field() -> None:
    sample = Sample(tokens=[1, 2], response_length=1, loss_mask=[1, 1])
    with pytest.raises(ValueError, match="loss_mask has 2 entries, 1 are needed"):
        sample.check_alignment()
