"""The summary says what happened, in numbers computed by hand."""

from pathlib import Path

from slime.tracking.summary import Totals, render_summary


def test_summary_numbers() -> None:
    totals = Totals(setup_seconds=30.0)
    totals.add_evaluation(0, {"eval/held_out": 0.25, "eval/held_out/length": 9.0})
    for reward in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        totals.add_rollout(
            {"rollout/raw_reward": reward, "rollout/response_tokens": 100, "train/tokens": 400}
        )
    totals.add_evaluation(6, {"eval/held_out": 0.95, "eval/held_out/length": 5.0})
    totals.add_phase("rollout", 3.0)
    totals.add_phase("train", 1.0)
    text = render_summary(totals, Path("runs/x"), 40.0, 2_500_000_000)
    assert "finished 6 rollouts in 40 s" in text
    assert "reward      0.400 -> 0.600" in text  # means of the first and last five
    assert "eval/held_out  0.250 -> 0.950" in text
    assert "rollout 75 %  train 25 %" in text
    assert "rollout 200, training 2400" in text
    assert "2.50 GB" in text
    assert "length" not in text


def test_an_empty_run_has_a_summary_too() -> None:
    assert "finished 0 rollouts" in render_summary(Totals(), Path("r"), 1.0, 0)
