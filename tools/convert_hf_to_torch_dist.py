"""Write a Hugging Face checkpoint as a torch_dist one, for --load and --ref-load.

    ./bazelw run //tools:convert_hf_to_torch_dist -- --hf-checkpoint MODEL --save OUT

It takes the options of a run, of which the parallel layout matters. torchrun starts several ranks:
`torchrun --nproc-per-node 8 tools/convert_hf_to_torch_dist.py ...`. A rank reads and writes only
its share. Any layout can load what any other has written.
"""

from __future__ import annotations

import os
import socket
import sys

from slime.arguments.errors import ConfigError
from slime.launch.convert_checkpoint import convert, read_arguments


def main() -> int:
    """The exit code: 2 if the options are wrong, 1 if it cannot be done."""
    environment = dict(os.environ)
    if "RANK" not in environment:  # not torchrun's: one rank
        environment |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
        environment["MASTER_PORT"] = str(_free_port() - 1)
    each = environment.get("LOCAL_WORLD_SIZE", "1")
    nodes = int(environment["WORLD_SIZE"]) // int(each)
    ranks = [f"--actor-num-gpus-per-node={each}", f"--actor-num-nodes={nodes}"]
    try:
        args = read_arguments([*ranks, *sys.argv[1:]], environment)
    except ConfigError as error:
        if environment["RANK"] == "0":
            print(error, file=sys.stderr)
        return 2
    # torchrun itself listens at MASTER_PORT.
    port = int(environment["MASTER_PORT"]) + 1
    return convert(args, int(environment["RANK"]), environment["MASTER_ADDR"], port)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
