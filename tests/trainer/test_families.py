"""Every model family against Hugging Face's own code: logits, and the export bit for bit."""

from __future__ import annotations

import pytest
import torch
from hf_models import KINDS
from safetensors.torch import load_file

pytestmark = pytest.mark.usefixtures("single_rank")


def _logits(args, trainer, rollout) -> list[torch.Tensor]:
    """Of the response positions of every sample of the first step, [n, vocabulary] each."""
    from slime.trainer.micro_batch import micro_batches_of_step
    from slime.trainer.response_logits import forward
    from slime.trainer.rollout_tensors import prepare

    found = []
    with torch.no_grad():
        for batch in micro_batches_of_step(args, prepare(args, rollout), 0):
            rows = forward(args, trainer.model[0], batch)[0]
            found += rows.split([rollout["response_lengths"][i] for i in batch.samples])
    return found


def _hf_logits(folder, rollout, count: int) -> list[torch.Tensor]:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    with torch.no_grad():
        for ids, response in zip(
            rollout["tokens"][:count], rollout["response_lengths"], strict=False
        ):
            logits = model(input_ids=torch.as_tensor(ids)[None]).logits[0]
            found.append(logits[-response - 1 : -1])
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_export_equal_hugging_face(kind, hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer.trainer import Trainer

    folder = hf_model(kind, False)
    args, rollout = args_for(folder), rollout_of(3)
    trainer = Trainer(args)
    trainer.load()
    ours = _logits(args, trainer, rollout)
    for got, want in zip(ours, _hf_logits(folder, rollout, len(ours)), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
    trainer.save_hf(tmp_path / "export")
    exported = load_file(tmp_path / "export" / "model.safetensors")
    original = load_file(folder / "model.safetensors")
    assert exported.keys() == original.keys()
    assert all(torch.equal(exported[name], value) for name, value in original.items())
