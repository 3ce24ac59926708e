"""Metrics of an evaluation set."""

from slime.metrics import eval_metrics
from slime.samples.sample import Sample


def test_scores_lengths_and_pass_rates_by_group() -> None:
    samples = [Sample(group_index=i // 2, index=i, response_length=i) for i in range(4)]
    result = {"rewards": [1.0, 0.0, None, 1.0], "truncated": [False, True, False, False]}
    assert eval_metrics("held_out", result | {"samples": samples}) == {
        "eval/held_out": 2 / 3,
        "eval/held_out/num_samples": 4,
        "eval/held_out/ungraded": 1,
        "eval/held_out/truncated_ratio": 1 / 4,
        "eval/held_out/response_len_mean": 1.5,
        "eval/held_out/response_len_max": 3,
        "eval/held_out/pass@1": 3 / 4,
        "eval/held_out/pass@2": 1.0,
    }


def test_a_custom_function_may_give_rewards_only() -> None:
    assert eval_metrics("x", {"rewards": [True, False]}) == {
        "eval/x": 0.5,
        "eval/x/num_samples": 2,
        "eval/x/ungraded": 0,
    }


def test_one_response_per_prompt_needs_no_pass_rate() -> None:
    samples = [Sample(group_index=i, index=i) for i in range(2)]
    metrics = eval_metrics("x", {"rewards": [1, 0], "samples": samples})
    assert metrics["eval/x"] == 0.5 and not any("pass@" in key for key in metrics)
