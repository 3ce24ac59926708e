"""The router: `python -m slime.engines.router_launch ...` takes sglang-router's own options.

Its launcher imports its Python load balancer, and that imports SGLang and PyTorch, whether it is
asked for (`--mini-lb`) or not. Without, the router starts in 0.1 s of CPU time, not 3, and takes
36 MB, not 366.
"""

import sys
import types

_UNUSED = "sglang_router.mini_lb"


def main(argv: list[str]) -> None:
    """Serve until a signal or an error ends the process."""
    if "--mini-lb" not in argv:
        empty = types.ModuleType(_UNUSED)
        vars(empty)["MiniLoadBalancer"] = None
        sys.modules[_UNUSED] = empty
    from sglang_router.launch_router import launch_router, parse_router_args

    launch_router(parse_router_args(argv))


if __name__ == "__main__":
    main(sys.argv[1:])
