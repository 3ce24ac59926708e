"""The published check of a group's GPUs."""

import pytest

from slime.cluster.rollout_validation import validate_server_group_gpu_indices


def check(offset: int, engines: int, available: int) -> None:
    validate_server_group_gpu_indices(
        worker_type="decode",
        gpu_offset=offset,
        num_gpus_per_engine=2,
        num_gpus_per_engine_on_node=2,
        num_engines=engines,
        num_available_gpus=available,
        rollout_num_gpus=8,
        rollout_num_gpus_per_engine=1,
    )


def test_the_last_engine_must_end_within_the_gpus() -> None:
    check(offset=4, engines=2, available=8)
    check(offset=99, engines=0, available=8)
    with pytest.raises(ValueError, match="2 decode engines .* GPU 5 .* up to 8, but there are 8"):
        check(offset=5, engines=2, available=8)
    with pytest.raises(ValueError, match="--sglang-config"):
        check(offset=-1, engines=1, available=8)
