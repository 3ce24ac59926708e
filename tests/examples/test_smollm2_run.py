"""SmolLM2-135M-Instruct through the whole loop: one rollout, one step, with every real part."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from slime.arguments import parse_args

CONFIG = "examples/smollm2/config.yaml"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smollm2") / "run"
    options = ["--num-rollout=1", f"--run-dir={folder}"]
    done = subprocess.run(
        [sys.executable, "-m", "slime.train", f"--config={CONFIG}", *options],
        cwd=os.environ.get("SLIME_RUNFILES", os.getcwd()),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return folder


def test_the_model_answers_in_its_own_chat_template() -> None:
    model_dir = parse_args(argv=[f"--config={CONFIG}"]).hf_checkpoint
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = model.generate(**inputs, max_new_tokens=10, do_sample=False)
    answer = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert "Paris" in answer


def test_one_rollout_is_graded_and_trained(run_dir: Path) -> None:
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    (rollout,) = [record for record in records if record["kind"] == "rollout"]
    assert 0.0 <= rollout["rollout/raw_reward"] <= 1.0
    assert rollout["rollout/weight_lag_max"] == 0  # made by the weights that the trainer had sent
    assert rollout["train/train_rollout_logprob_abs_diff"] < 0.1  # bfloat16 in two programs
    assert 0 < rollout["rollout/response_tokens"] <= 16 * 32
    assert rollout["train/grad_norm"] >= 0.0


def test_the_export_has_the_weights_names_and_shapes_of_the_model(run_dir: Path) -> None:
    model_dir = Path(parse_args(argv=[f"--config={CONFIG}"]).hf_checkpoint)
    before = load_file(model_dir / "model.safetensors")
    after: dict[str, torch.Tensor] = {}
    for shard in (run_dir / "hf").glob("*.safetensors"):
        after |= load_file(shard)
    assert {k: v.shape for k, v in after.items()} == {k: v.shape for k, v in before.items()}
    largest = max((after[k].float() - before[k].float()).abs().max().item() for k in before)
    assert largest < 1e-4  # one step of Adam at 1e-6; large weights stay the same in bfloat16
