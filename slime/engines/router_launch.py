"""The router: `python -m slime.engines.router_launch ...` takes sglang-router's own options.

Its own launcher imports a load balancer in Python, and with that SGLang and PyTorch, whether it is
asked for (`--mini-lb`) or not. Without, the router starts in 0.1 s of CPU time, not 3, and takes
36 MB, not 366. And its parser does not know two policies that the router has.
"""

import argparse
import sys
import types

_UNUSED = "sglang_router.mini_lb"
_MORE_POLICIES = ("consistent_hashing", "prefix_hash")


def main(argv: list[str]) -> None:
    """Serve until a signal or an error ends the process."""
    if "--mini-lb" not in argv:
        empty = types.ModuleType(_UNUSED)
        vars(empty)["MiniLoadBalancer"] = None
        sys.modules[_UNUSED] = empty
    from sglang_router.launch_router import launch_router
    from sglang_router.router_args import RouterArgs

    parser = argparse.ArgumentParser("sglang_router")
    RouterArgs.add_cli_args(parser, use_router_prefix=False)
    for action in parser._actions:
        if action.dest.endswith("policy") and action.choices and "manual" in action.choices:
            action.choices = [*action.choices, *_MORE_POLICIES]
    launch_router(RouterArgs.from_cli_args(parser.parse_args(argv), use_router_prefix=False))


if __name__ == "__main__":
    main(sys.argv[1:])
