"""PPO as a user runs it: actor and critic on the same rollouts, stopped and resumed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.e2e.job import Job
from tests.e2e.random_rollouts import save_random_rollouts

PPO = ("--advantage-estimator=ppo", "--normalize-advantages", "--num-critic-only-steps=1")
ROLES = """
megatron:
  - {role: critic, overrides: {lr: 1.0e-3, max_tokens_per_gpu: 512}}
"""


def test_a_resumed_run_equals_one_with_another_critic_layout(
    start_job: Callable[..., Job], tmp_path: Path
) -> None:
    (tmp_path / "roles.yaml").write_text(ROLES)
    dump = save_random_rollouts(tmp_path, 3)
    trained = (*PPO, f"--megatron-config-path={tmp_path}/roles.yaml", "--lr-decay-iters=9")
    replay = (*trained, "--debug-train-only", f"--load-debug-rollout-data={dump}")
    first = start_job(*replay, "--num-rollout=2")
    own_ranks = start_job(*replay, "--num-rollout=3", "--critic-num-gpus-per-node=2")
    assert first.wait() == 0, first.text
    folder = first.run_dir / "checkpoints"
    for root in (folder, folder / "critic"):
        assert (root / "latest_checkpointed_iteration.txt").read_text().strip() == "1"
    resumed = start_job(*replay, "--num-rollout=3", f"--load={folder}")
    assert resumed.wait() == 0, resumed.text
    assert [record["step"] for record in resumed.metrics("rollout")] == [2]

    assert own_ranks.wait() == 0, own_ranks.text
    alone, *both = own_ranks.metrics("rollout")
    assert "train/loss" not in alone
    assert all("train/loss" in record and "critic/loss" in record for record in both)
    assert alone["critic/lr"] > both[0]["train/lr"]
    for record in resumed.metrics("rollout"):
        for key in ("critic/loss", "critic/values", "train/grad_norm", "train/values"):
            assert record[key] == pytest.approx(both[-1][key], rel=1e-3), key
    left, right = (
        load_file(run.run_dir / "hf" / "model.safetensors") for run in (resumed, own_ranks)
    )
    # AdamW divides a gradient by its own size, so one near zero moves its weight by up to the
    # learning rate in either direction: such weights may differ, if they are few.
    apart = torch.cat([(left[name] - right[name]).abs().flatten() for name in left])
    assert apart.max() < 2e-4
    assert (apart > 1e-5).double().mean() < 1e-4
