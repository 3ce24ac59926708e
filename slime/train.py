"""The entry point: ``./bazelw run //slime:train -- --config=FILE`` (or ``slime --config=FILE``)."""

import fcntl
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from slime.arguments import parse_args
from slime.arguments.check_built import check_built
from slime.arguments.check_rollout import check_entry
from slime.arguments.errors import ConfigError, Problem
from slime.arguments.plan import build_plan, render
from slime.arguments.print_config import render_config, render_resolved
from slime.arguments.roles import args_of_role


def main(argv: Sequence[str] | None = None, *, overlapped: bool = False) -> int:
    """Check the configuration, then run the job (or only show its plan); returns the exit code.

    ``overlapped``: generate the next rollout while one trains (`slime.train_async`).
    """
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
    unbuilt = [*check_built(args), *check_entry(args, overlapped)]
    if unbuilt:
        print(ConfigError(unbuilt), file=sys.stderr)
        return 2
    if args.dry_run:
        return 0
    for warning in build_plan(args).warnings:
        print(f"warning: {warning}", file=sys.stderr)
    try:
        lock = _claim(Path(args.run_dir))
        _write_configuration(args)
    except (ConfigError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if not args.ray_address:  # Ray reads this when it is imported: the local one stays on loopback
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    from slime.cluster.run import run

    with lock:
        return run(args_of_role(args, "actor"), overlapped)  # data and checkpoints go with it


def _claim(run_dir: Path) -> TextIO:
    """Make the run directory and keep other runs out of it for as long as the result is open.

    Raises:
        ConfigError: another run uses it.
        OSError: it cannot be made.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    lock = (run_dir / ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        message = "another run is writing to it"
        problem = Problem("--run-dir", str(run_dir), message, "wait for its end, or give another")
        raise ConfigError([problem]) from None
    except OSError:  # some network file systems have no locks
        pass
    return lock


def _write_configuration(args: Namespace) -> None:
    run_dir = Path(args.run_dir)
    (run_dir / "config.yaml").write_text(render_config(args), encoding="utf-8")
    (run_dir / "resolved.yaml").write_text(render_resolved(args), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
