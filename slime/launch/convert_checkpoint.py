"""Make a torch_dist checkpoint of a Hugging Face one; torchrun starts one process per rank.

    torchrun --nproc-per-node 2 -m slime.launch.convert_checkpoint \\
        --hf-checkpoint DIR --save DIR --actor-num-gpus-per-node 2 --tensor-model-parallel-size 2
"""

import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from slime.arguments import parse_args
from slime.arguments.errors import ConfigError

# A run's required options, which mean nothing here.
_UNUSED = ["--num-rollout=1", "--rollout-batch-size=1", "--lr=0", "--debug-train-only"]
_UNUSED += ["--advantage-estimator=reinforce_plus_plus"]


def read_arguments(argv: Sequence[str], environment: dict[str, str]) -> Namespace:
    """The options of a conversion.

    Raises:
        ConfigError: they are wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "0").touch()  # to train on: must be there, is not read
        rest = [f"--load-debug-rollout-data={folder}/{{rollout_id}}", "--no-save-optim"]
        args = parse_args(argv=[*argv, *_UNUSED, *rest])
    wanted, started = args.world_size, int(environment["WORLD_SIZE"])
    assert wanted == started, f"{started} processes for {wanted} ranks"
    return args


def convert(args: Namespace, rank: int, address: str, port: int) -> int:
    """Load the Hugging Face weights and save them as rollout 0's; collective.

    Returns:
        The exit code: 1, with a sentence of rank 0, if it cannot be done.
    """
    from slime.trainer.initialize import init

    init(args, rank, args.world_size, address, port)
    from slime.trainer import hf_to_torch_dist  # after init, which quiets Megatron's warnings
    from slime.trainer.hf_to_megatron.common import CheckpointError

    try:
        hf_to_torch_dist.convert(args)
    except CheckpointError as error:
        if rank == 0:
            print(error, file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """The exit code: 2 if the options are wrong, 1 if it cannot be done."""
    environment = dict(os.environ)
    rank = int(environment["RANK"])
    try:
        args = read_arguments(sys.argv[1:], environment)
    except ConfigError as error:
        if rank == 0:
            print(error, file=sys.stderr)
        return 2
    # torchrun itself listens at MASTER_PORT.
    return convert(args, rank, environment["MASTER_ADDR"], int(environment["MASTER_PORT"]) + 1)


if __name__ == "__main__":
    sys.exit(main())
