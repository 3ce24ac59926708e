"""`--deterministic-mode`: kernels that are not deterministic are refused, and runs are the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

pytestmark = pytest.mark.usefixtures("single_rank")


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The mode as a train process has it, and none of it afterwards."""
    from slime.arguments.check_determinism import SETTINGS
    from slime.trainer.determinism import use_deterministic_kernels

    for name in SETTINGS:
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    use_deterministic_kernels()
    yield
    torch.use_deterministic_algorithms(False)


def test_libraries_are_told_before_they_start(deterministic):
    import os

    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert os.environ["NCCL_ALGO"] == "Ring"
    assert os.environ["NVTE_ALLOW_NONDETERMINISTIC_ALGO"] == "0"
    with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))


def test_a_setting_of_the_environment_is_kept_or_refused(deterministic, monkeypatch):
    import os

    from slime.arguments.errors import ConfigError
    from slime.trainer.determinism import use_deterministic_kernels

    monkeypatch.setenv("NCCL_ALGO", "Tree")
    use_deterministic_kernels()
    assert os.environ["NCCL_ALGO"] == "Tree"
    monkeypatch.setenv("NCCL_ALGO", "NVLS")
    with pytest.raises(ConfigError, match="environment variable NCCL_ALGO = NVLS"):
        use_deterministic_kernels()


@pytest.mark.parametrize("kind", ["qwen3", "qwen3_moe", "moonlight"])
def test_two_runs_are_equal_bit_for_bit(kind, deterministic, hf_model, args_for, rollout_of):
    from slime.trainer.model_config import transformer_config

    options = {"deterministic_mode": True, "use_kl_loss": True, "kl_loss_coef": 0.1, "lr": 1e-2}
    args = args_for(hf_model(kind, False), **options, kl_loss_type="k3", entropy_coef=0.01)
    assert transformer_config(args).deterministic_mode
    first, second = (_run(args, rollout_of) for _ in range(2))
    assert first[0] == second[0]
    assert all(torch.equal(value, second[1][name]) for name, value in first[1].items())


def _run(args, rollout_of):
    """Metrics (but times) and final weights of three rollouts from the seed on."""
    from slime.trainer.trainer import Trainer

    torch.manual_seed(args.seed)
    trainer = Trainer(args)
    trainer.load()
    metrics = [trainer.train(i, rollout_of(i)) for i in range(3)]
    timeless = [{k: v for k, v in m.items() if not k.startswith("seconds")} for m in metrics]
    weights = {n: t.clone() for bucket in trainer.hf_weight_buckets(1 << 30) for n, t in bucket}
    return timeless, weights
