"""Losses and gradient norms that TRL's GRPOTrainer gave, recorded in trl_losses.json.

The model is the tests' random Qwen3; each case has TRL's configuration and the options that mean
the same here. TRL is not needed to run this.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.usefixtures("single_rank")
RECORD = json.loads(Path(__file__).with_name("trl_losses.json").read_text())


@pytest.mark.parametrize("name", RECORD["cases"])
def test_trl_gave_the_same(name, hf_model, args_for):
    from slime.trainer.trainer import Trainer

    case = RECORD["cases"][name]
    trainer = Trainer(args_for(hf_model(), **case["options"], rollout_temperature=0.8))
    trainer.load()
    rows = zip(RECORD["prompts"], RECORD["completions"], strict=True)
    masks = [np.array(mask, dtype=np.float32) for mask in RECORD["masks"]]
    trainer.prepare(
        {
            "tokens": [np.array(prompt + completion) for prompt, completion in rows],
            "total_lengths": [11] * 4,
            "response_lengths": [6] * 4,
            "loss_masks": masks,
            "rewards": RECORD["advantages"],
            "rollout_ids": [0, 1, 2, 3],
            "micro_batch_indices": [[0, 1], [2, 3]],
            "num_microbatches": [2],
            "global_batch_sizes": [4],
            "global_num_tokens": [float(sum(mask.sum() for mask in masks))],
        }
    )
    for key, recorded in (("log_probs", "old_log_probs"), ("ref_log_probs", "ref_log_probs")):
        trainer._prepared[key] = [torch.tensor(values) for values in RECORD[recorded]]
    metrics = trainer.train_prepared(0)
    assert metrics["loss"] == pytest.approx(case["loss"], rel=1e-5)
    assert metrics["grad_norm"] == pytest.approx(case["grad_norm"], rel=1e-5)
