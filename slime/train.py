"""The entry point: ``./bazelw run //slime:train -- --config=FILE`` (or ``slime --config=FILE``)."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from slime.arguments import parse_args
from slime.arguments.errors import ConfigError
from slime.arguments.plan import build_plan, render
from slime.arguments.print_config import render_config, render_resolved
from slime.arguments.roles import args_of_role


def main(argv: Sequence[str] | None = None) -> int:
    """Check the configuration, then run the job (or only show its plan); returns the exit code."""
    try:
        args = parse_args(argv=argv)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if args.print_config:
        print(render_config(args), end="")
        return 0
    if args.dry_run:
        print(render(build_plan(args)))
        return 0
    _write_configuration(args)
    if not args.ray_address:  # Ray reads this when it is imported: the local one stays on loopback
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    from slime.cluster.run import run

    return run(args_of_role(args, "actor"))  # data and checkpoints go with the actor


def _write_configuration(args: Namespace) -> None:
    run_dir = Path(args.run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "config.yaml").write_text(render_config(args))
    (run_dir / "resolved.yaml").write_text(render_resolved(args))


if __name__ == "__main__":
    sys.exit(main())
