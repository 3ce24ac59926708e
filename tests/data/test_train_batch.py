"""Batches for the data-parallel ranks: aligned, complete, in the order of each partition."""

from argparse import Namespace

import pytest

from slime.data.train_batch import convert_samples_to_train_data, split_by_dp
from slime.samples.packed import stored
from slime.samples.sample import Sample


def make_args(**changes: object) -> Namespace:
    base = {
        "use_dynamic_batch_size": True,
        "max_tokens_per_gpu": 8,
        "micro_batch_size": 1,
        "balance_data": True,
        "balance_by_flops": False,
        "global_batch_size": None,
        "custom_convert_samples_to_train_data_path": None,
    }
    return Namespace(**base | changes)


def make_sample(index: int, response: int, rollout: int | None = None) -> Sample:
    sample = Sample(
        index=100 + index, tokens=[index, index], rollout_id=index if rollout is None else rollout
    )
    for position in range(response):
        sample.append_response_tokens(
            meta_info={
                "output_token_logprobs": [[-float(position), 50 + position, None]],
                "finish_reason": {"type": "length" if index % 2 else "stop"},
                "weight_version": "4",
            }
        )
    return sample


def test_fields() -> None:
    samples = [make_sample(0, 2), make_sample(1, 3)]
    samples[1].loss_mask = [1, 0, 1]
    data = convert_samples_to_train_data(make_args(), samples, [1.0, 0.0], [0.7, -0.7])
    assert [list(t) for t in data["tokens"]] == [[0, 0, 50, 51], [1, 1, 50, 51, 52]]
    assert (data["total_lengths"], data["response_lengths"]) == ([4, 5], [2, 3])
    assert [list(m) for m in data["loss_masks"]] == [[1, 1], [1, 0, 1]]
    assert (data["rewards"], data["raw_reward"]) == ([0.7, -0.7], [1.0, 0.0])
    assert (data["truncated"], data["sample_indices"]) == ([0, 1], [100, 101])
    assert data["weight_versions"] == [["4"], ["4"]]
    assert [list(values) for values in data["rollout_log_probs"]] == [[0, -1], [0, -1, -2]]
    assert "teacher_log_probs" not in data


def test_arrays_of_generated_samples_are_taken_as_they_are() -> None:
    arrays, lists = [make_sample(i, 3) for i in range(4)], [make_sample(i, 3) for i in range(4)]
    for sample in lists:
        assert sample.tokens and sample.loss_mask and sample.rollout_log_probs  # now lists
    made = [
        convert_samples_to_train_data(make_args(), s, [1] * 4, [1] * 4) for s in (arrays, lists)
    ]
    assert all(
        data is stored(s, "tokens") for data, s in zip(made[0]["tokens"], arrays, strict=True)
    )
    first, second = (split_by_dp(make_args(), data, {"dp_size": 2}) for data in made)
    for one, other in zip(first, second, strict=True):
        for name in ("tokens", "loss_masks", "rollout_log_probs"):
            assert one[name].flat.dtype == other[name].flat.dtype
            assert one[name].flat.tolist() == other[name].flat.tolist() != []


def test_removed_samples_train_nothing() -> None:
    sample = make_sample(0, 2)
    sample.remove_sample = True
    data = convert_samples_to_train_data(make_args(), [sample], [1.0], [1.0])
    assert data["loss_masks"][0].tolist() == [0, 0]


def test_misaligned_or_half_present_fields_are_refused() -> None:
    broken, whole = make_sample(0, 2), make_sample(1, 2)
    broken.loss_mask = [1]
    with pytest.raises(ValueError, match="loss_mask has 1 entries, 2 are needed"):
        convert_samples_to_train_data(make_args(), [broken, whole], [1, 1], [1, 1])
    broken.loss_mask, broken.rollout_log_probs = [1, 1], None
    with pytest.raises(ValueError, match=r"rollout_log_probs: 1 of 2 samples have none: \[100\]"):
        convert_samples_to_train_data(make_args(), [broken, whole], [1, 1], [1, 1])
    with pytest.raises(ValueError, match="2 samples, 1 raw rewards"):
        convert_samples_to_train_data(make_args(), [whole, whole], [1], [1])


def test_every_per_sample_list_follows_the_partition() -> None:
    samples = [make_sample(i, 1 + i % 5, rollout=i // 2) for i in range(12)]
    values = [float(i) for i in range(12)]
    data = convert_samples_to_train_data(make_args(), samples, values, [-v for v in values])
    data["my_list"] = [f"s{i}" for i in range(12)]
    args = make_args(global_batch_size=3)
    ranks = split_by_dp(args, data, {"dp_size": 2, "cp_size": 1})
    assert sorted(i for rank in ranks for i in rank["partition"]) == list(range(12))
    for rank in ranks:
        part = rank["partition"]
        assert rank["raw_reward"] == [float(i) for i in part]
        assert rank["rewards"] == [-float(i) for i in part]
        assert rank["my_list"] == [f"s{i}" for i in part]
        assert [t[0] for t in rank["tokens"]] == part
        assert rank["rollout_ids"] == [i // 2 for i in part]
        assert rank["global_batch_sizes"] == [3, 3]
        # Step s trains samples 6 s ... 6 s + 5; its token count is the same on every rank.
        expected = [sum(1 + i % 5 for i in range(6 * s, 6 * s + 6)) for s in (0, 1)]
        assert rank["global_num_tokens"] == expected
    assert ranks[0]["num_microbatches"] == ranks[1]["num_microbatches"]


def test_without_a_global_batch_size_there_is_one_step() -> None:
    samples = [make_sample(i, 2) for i in range(4)]
    data = convert_samples_to_train_data(make_args(), samples, [1] * 4, [1] * 4)
    (rank,) = split_by_dp(make_args(), data, {"dp_size": 1})
    assert rank["global_batch_sizes"] == [4] and rank["num_microbatches"] == [2]


def test_lists_of_another_length_are_refused() -> None:
    data = convert_samples_to_train_data(make_args(), [make_sample(0, 2)], [1], [1])
    data["mine"] = [1, 2]
    with pytest.raises(ValueError, match="mine has 2 entries for 1 samples"):
        split_by_dp(make_args(), data, {"dp_size": 1})


def custom_conversion(args: Namespace, samples: list[Sample]) -> dict:
    return {"tokens": [sample.tokens for sample in samples], "loss_masks": [[1], [1]]}


def test_a_custom_conversion_takes_over_and_may_leave_out_what_can_be_derived() -> None:
    args = make_args(custom_convert_samples_to_train_data_path=f"{__name__}.custom_conversion")
    data = convert_samples_to_train_data(args, [make_sample(0, 1), make_sample(1, 1)], [1], [1])
    (rank,) = split_by_dp(args, data, {"dp_size": 1})
    assert [tokens.tolist() for tokens in rank["tokens"]] == [[0, 0, 50], [1, 1, 50]]
    assert rank["total_lengths"] == [3, 3]
    assert rank["rollout_ids"] == [0, 1] and rank["global_num_tokens"] == [2.0]
