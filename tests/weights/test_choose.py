"""Which way the weights go."""

from argparse import Namespace
from pathlib import Path

import pytest

from slime.weights.choose import make_updater
from slime.weights.disk import DiskWeightUpdater
from slime.weights.distributed import DistributedWeightUpdater
from slime.weights.tensor import TensorWeightUpdater


@pytest.mark.parametrize(
    ("changed", "kind", "backend"),
    [
        ({}, TensorWeightUpdater, None),
        ({"rollout_num_gpus_per_engine": 2}, TensorWeightUpdater, None),
        ({"colocate": True, "device": "cuda"}, TensorWeightUpdater, None),
        ({"device": "cuda"}, DistributedWeightUpdater, "nccl"),
        ({"rollout_external_engine_addrs": ["a:1"]}, DistributedWeightUpdater, "gloo"),
        # Engines of four ranks over two nodes.
        ({"rollout_num_gpus_per_engine": 4}, DistributedWeightUpdater, "gloo"),
        ({"rollout_num_gpus_per_engine": 4, "device": "cuda"}, DistributedWeightUpdater, "nccl"),
        (
            {"rollout_num_gpus_per_engine": 4, "device": "cuda", "colocate": True},
            DistributedWeightUpdater,
            "gloo",  # NCCL has no place for two ranks on one GPU
        ),
        (
            {"rollout_num_gpus_per_engine": 4, "update_weight_transport": "disk"},
            DiskWeightUpdater,
            None,
        ),
    ],
)
def test_the_way_follows_from_where_the_engines_are(
    changed: dict, kind: type, backend: str | None, tmp_path: Path
) -> None:
    values = {
        "hf_checkpoint": str(tmp_path),
        "check_weight_update_equal": False,
        "update_weight_mode": "full",
        "update_weight_transport": "nccl",
        "update_weight_disk_dir": str(tmp_path / "weights"),
        "update_weight_disk_keep_files": False,
        "device": "cpu",
        "colocate": False,
        "debug_train_only": False,
        "rollout_external_engine_addrs": None,
        "rollout_num_gpus": 8,
        "rollout_num_gpus_per_engine": 1,
        "num_gpus_per_node": 2,
        "sglang_models": [],
        "prefill_num_servers": None,
    }
    updater = make_updater(Namespace(**(values | changed)))
    assert type(updater) is kind
    assert getattr(updater, "_backend", None) == backend
