"""The published check that a group of engines finds its GPUs."""


def validate_server_group_gpu_indices(
    *,
    worker_type: str,
    gpu_offset: int,
    num_gpus_per_engine: int,
    num_gpus_per_engine_on_node: int,
    num_engines: int,
    num_available_gpus: int,
    rollout_num_gpus: int,
    rollout_num_gpus_per_engine: int,
) -> None:
    """Engines of a group take consecutive GPUs from `gpu_offset` on.

    Raises:
        ValueError: the last engine would begin or end beyond the `num_available_gpus`.
    """
    if num_engines <= 0:
        return
    first_of_last = gpu_offset + (num_engines - 1) * num_gpus_per_engine
    end = first_of_last + num_gpus_per_engine_on_node
    if gpu_offset < 0 or end > num_available_gpus:
        raise ValueError(
            f"{num_engines} {worker_type} engines of {num_gpus_per_engine} GPUs from GPU "
            f"{gpu_offset} on need GPUs up to {end - 1}, but there are {num_available_gpus}; check "
            f"--rollout-num-gpus ({rollout_num_gpus}), --rollout-num-gpus-per-engine "
            f"({rollout_num_gpus_per_engine}) and --sglang-config"
        )
