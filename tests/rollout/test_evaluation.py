"""Evaluation sets with settings of their own, on a real engine."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from slime.rollout import sglang_rollout
from slime.rollout.errors import RolloutError
from slime.rollout.evaluation import make_groups
from slime.samples.sample import Sample
from tests.engines.real_servers import make_args, make_model


@pytest.fixture
def eval_args(servers, model_folder, tmp_path):
    """Two sets: `greedy`, 1 sample of at most 5 tokens, and `sampled`, 3 samples of at most 8."""
    rows = [{"q": f"say {letter}", "label": letter} for letter in "abc"]
    data = tmp_path / "eval.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    greedy = {"name": "greedy", "temperature": 0.0, "max_response_len": 5}
    sampled = {"name": "sampled", "n_samples_per_eval_prompt": 3}
    sampled["metadata_overrides"] = {"kind": "held out"}
    defaults = {"path": str(data), "input_key": "q", "label_key": "label"}
    datasets = [{**defaults, **entry} for entry in (greedy, sampled)]
    config = tmp_path / "eval.yaml"
    config.write_text(yaml.safe_dump({"eval": {"datasets": datasets}}))
    args = make_args(model_folder, tmp_path, "--eval-config", str(config), "--eval-interval", "1")
    args.sglang_router_ip = servers.args.sglang_router_ip
    args.sglang_router_port = servers.args.sglang_router_port
    return args


def test_every_set_is_evaluated_with_its_own_settings(eval_args):
    output = sglang_rollout.generate_rollout(eval_args, 0, None, evaluation=True)
    greedy, sampled = output.data["greedy"], output.data["sampled"]
    assert [len(greedy[key]) for key in ("rewards", "truncated", "samples")] == [3, 3, 3]
    assert [len(sampled[key]) for key in ("rewards", "truncated", "samples")] == [9, 9, 9]
    assert max(sample.response_length for sample in greedy["samples"]) <= 5
    assert [s.group_index for s in sampled["samples"]] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len({s.index for s in sampled["samples"]}) == 9
    assert {s.metadata["kind"] for s in sampled["samples"]} == {"held out"}
    assert len({tuple(s.tokens) for s in sampled["samples"]}) > 3  # it samples
    for sample, truncated in zip(greedy["samples"], greedy["truncated"], strict=True):
        assert truncated == (sample.tokens[-1] != 1)


def test_greedy_answers_equal_those_of_the_hugging_face_model(eval_args):
    model = make_model(seed=0)
    output = sglang_rollout.generate_rollout(eval_args, 0, None, evaluation=True)
    for sample in output.data["greedy"]["samples"]:
        prompt = sample.tokens[: -sample.response_length]
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=5, do_sample=False)
        assert sample.tokens == expected[0].tolist()


def test_prompts_are_loaded_once(eval_args):
    sglang_rollout.generate_rollout(eval_args, 0, None, evaluation=True)
    Path(eval_args.eval_datasets[0].path).write_text("")  # both sets are in it
    output = sglang_rollout.generate_rollout(eval_args, 1, None, evaluation=True)
    assert len(output.data["greedy"]["samples"]) == 3


def test_a_sample_without_an_answer_is_an_error_and_not_a_zero(eval_args, monkeypatch):
    monkeypatch.setattr("slime.rollout.http_client.RETRY_SECONDS", 0.1)
    eval_args.sglang_router_port = 1
    with pytest.raises(RolloutError, match="evaluation (greedy|sampled), sample .*127.0.0.1:1"):
        sglang_rollout.generate_rollout(eval_args, 0, None, evaluation=True)


def test_groups_carry_the_paths_of_their_set_and_leave_the_prompts_alone(eval_args):
    dataset = eval_args.eval_datasets[1]
    dataset.custom_rm_path = "my.grader"
    dataset.rm_type = "math"
    prompts = [
        Sample(prompt="p", metadata={"a": 1}),
        Sample(prompt="q", metadata={"rm_type": "f1"}),
    ]
    groups = make_groups(dataset, prompts)
    assert [[s.prompt for s in group] for group in groups] == [["p"] * 3, ["q"] * 3]
    assert groups[0][0].metadata == {"a": 1, "kind": "held out", "rm_type": "math"}
    assert groups[1][0].metadata["rm_type"] == "f1"  # the sample's own wins
    assert groups[0][0].custom_rm_path == "my.grader"
    assert prompts[0].metadata == {"a": 1}
