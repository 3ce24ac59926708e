"""Prefill and decode engines on a CPU compute as Hugging Face does, also with latent attention."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.engines.real_servers import generate, largest_difference, make_args, running, save_model
from tests.trainer.hf_models import write_hf_model

ALPHABET = list(range(2, 39))
APART = ["--rollout-num-gpus=2", "--prefill-num-servers=1"]
APART += ["--sglang-disaggregation-transfer-backend=mooncake"]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_model(tmp_path_factory.mktemp("model"))  # for its tokenizer
    return write_hf_model(folder, "moonlight", tied=False)


def test_log_probs_are_those_of_hugging_face(model_folder: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    prompts = [ALPHABET[:30], ALPHABET[5:8], ALPHABET[:10] + ALPHABET[20:]]
    with running(make_args(model_folder, tmp_path, *APART)) as servers:
        for _ in range(2):  # the second time the prefill engine has the prompts in its cache
            answers = generate(servers.router_url, prompts, temperature=1.0)
            for prompt, answer in zip(prompts, answers, strict=True):
                assert len(answer["output_ids"]) == 8
                assert largest_difference(model, prompt, answer) < 1e-4
        logs = Path(servers.args.run_dir, "logs")
        assert "pd disaggregation warmup" in (logs / "engine_1.log").read_text()
