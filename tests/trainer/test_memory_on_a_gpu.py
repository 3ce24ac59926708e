"""The record of GPU memory: of the rollouts asked for, from the model's first weight on."""

from __future__ import annotations

import pickle

import torch.distributed as dist
from conftest import free_port


def test_pytorch_records_the_rollouts_asked_for(hf_model, args_for, rollout_of, tmp_path):
    from slime.trainer.initialize import init
    from slime.trainer.trainer import Trainer

    options = {"device": "cuda", "bf16": True, "memory_snapshot_num_steps": 1}
    args = args_for(hf_model(), **options, memory_snapshot_dir=str(tmp_path))
    init(args, master_port=free_port())
    trainer = Trainer(args)
    trainer.load()
    trainer.train(0, rollout_of(0))
    file = tmp_path / "snapshot_actor_rank0.pickle"
    recorded = file.read_bytes()
    snapshot = pickle.loads(recorded)
    frames = (
        frame["name"]
        for events in snapshot["device_traces"]
        for event in events
        for frame in event["frames"]
    )
    assert {"build_layer", "forward_backward"} <= set(frames)
    trainer.train(1, rollout_of(1))
    assert file.read_bytes() == recorded
    dist.destroy_process_group()
