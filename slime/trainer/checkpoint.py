"""torch_dist checkpoints: everything of the trainer, in one atomic step, or in the background.

Every function is collective; a failure on one rank is raised on all.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.state_dict_utils import save_preprocess
from megatron.core.dist_checkpointing.strategies.common import TorchCommonSaveStrategy
from megatron.core.optimizer import MegatronOptimizer

from slime.trainer import checkpoint_files as files
from slime.trainer.checkpoint_content import (
    TrainState,
    adam_settings_kept,
    keyed,
    layout,
    set_rng_state,
    sharded_state,
)
from slime.trainer.checkpoint_fit import model_problem, reading
from slime.trainer.hf_to_megatron.common import CheckpointError
from slime.trainer.optimizer import allocate_moments, allocate_offloaded
from slime.trainer.stateless_adam import zero_moments
from slime.trainer.torch_dist_writer import BackgroundWrite

T = TypeVar("T")


class CheckpointSaver:
    """Saves checkpoints below ``root``, one at a time.

    With ``--async-save`` :meth:`save` returns when everything is copied to host memory; the files
    are written by a thread, and the tracker moves in :meth:`poll`, :meth:`finish` or the next
    :meth:`save`.
    """

    def __init__(self, args: Namespace) -> None:
        self._args = args
        self._pending: tuple[BackgroundWrite, str | Path, int] | None = None

    def save(
        self, state: TrainState, root: str | Path, iteration: int, extra: dict[str, Any]
    ) -> None:
        """Write a checkpoint. ``extra`` (plain values) comes back from :func:`load`.

        Raises:
            CheckpointError: it could not be written (a full disk); what was there is untouched.
        """
        self.finish()
        write = _start(self._args, state, root, iteration, extra)
        self._pending = (write, root, iteration)
        if not self._args.async_save:
            self.finish()

    def poll(self) -> None:
        """Complete the save in the background if every rank has written its part; never waits."""
        if self._pending is None:
            return
        done = torch.tensor([int(self._pending[0].done())], device=torch.cuda.current_device())
        dist.all_reduce(done, op=dist.ReduceOp.MIN)
        if done.item():
            self.finish()

    def finish(self) -> None:
        """Wait for the save in the background and complete it.

        Raises:
            CheckpointError: it could not be written.
        """
        if self._pending is None:
            return
        write, root, iteration = self._pending
        self._pending = None
        _complete(write, root, iteration)


def save(
    args: Namespace, state: TrainState, root: str | Path, iteration: int, extra: dict[str, Any]
) -> None:
    """Write a checkpoint and wait for it; see :meth:`CheckpointSaver.save`."""
    _complete(_start(args, state, root, iteration, extra), root, iteration)


def _start(
    args: Namespace, state: TrainState, root: str | Path, iteration: int, extra: dict[str, Any]
) -> BackgroundWrite:
    with_rng = not args.no_save_rng
    if state.optimizer is not None:
        allocate_moments(state.optimizer)
    with zero_moments(state.optimizer):
        content = sharded_state(state, loading=False, with_rng=with_rng)
    content.update(
        iteration=iteration,
        has_rng=with_rng,
        layout=layout(args),
        vocab_size=args.hf_architecture["vocab_size"],
        distributed_optimizer=args.use_distributed_optimizer,
        stateless_adam=args.use_stateless_adam,
        slime=extra,
    )
    _saving(root, iteration, lambda: _on_rank_0(files.start_partial, root, iteration))
    partial = files.partial_dir(root, iteration)
    sharded, common = save_preprocess(content)
    common_strategy = TorchCommonSaveStrategy("torch", 1)
    _saving(root, iteration, lambda: common_strategy.save_common(common, partial))
    return BackgroundWrite(sharded, partial, copy=args.async_save)


def _complete(write: BackgroundWrite, root: str | Path, iteration: int) -> None:
    parts = _saving(root, iteration, write.result)

    def publish() -> None:
        partial = files.partial_dir(root, iteration)
        write.write_metadata(parts)
        known = {name: value for part in parts for name, value in part.checksums.items()}
        beside = Path(root) / "rollout" / f"data_source_{iteration:07d}.json"
        files.write_manifest(partial, known, beside)
        files.put_in_place(root, iteration)

    _saving(root, iteration, lambda: _on_rank_0(publish))


def _saving(root: str | Path, iteration: int, action: Callable[[], T]) -> list[T]:
    """What ``action`` returns on every rank.

    Raises:
        CheckpointError: it failed on some; the partial checkpoint is gone then.
    """
    try:
        outcome: tuple[T | None, str | None] = (action(), None)
    except (OSError, RuntimeError) as error:  # torch.save makes the one into the other
        outcome = (None, str(error))
    outcomes = _gather(outcome)
    problems = [f"rank {rank}: {error}" for rank, (_, error) in enumerate(outcomes) if error]
    if problems:
        _on_rank_0(files.discard_partial, root, iteration)
        kept = files.previous_iteration(root)
        raise CheckpointError(
            f"the checkpoint of rollout {iteration} could not be written to {root}: "
            f"{'; '.join(problems)}. "
            + ("There is none before it" if kept is None else f"That of rollout {kept} is whole")
        )
    return [value for value, _ in outcomes]  # type: ignore[misc]


def usable_iteration(
    root: str | Path | None, step: int | None = None, use_previous: bool = False
) -> int | None:
    """The iteration to load: the tracker's (or ``step``), checked; None where there is none.

    With ``use_previous`` the newest whole checkpoint before a damaged one takes its place.

    Raises:
        CheckpointError: the checkpoint is damaged; names each file and what may be used instead.
    """
    if root is None or not (Path(root) / files.TRACKER).is_file():
        return None
    _on_rank_0(files.repair, root)
    dist.barrier()
    iteration, problems = None, []
    try:
        iteration = files.latest_iteration(root, step)
    except CheckpointError as error:
        problems = [str(error)]
    problems = _union(problems or _damage(root, iteration))
    if not problems:
        return iteration
    before = _whole_before(root, iteration if iteration is not None else step)
    message = "; ".join(problems)
    if before is None:
        raise CheckpointError(f"{message}; no whole checkpoint lies beside it")
    if not use_previous:
        raise CheckpointError(
            f"{message}; the checkpoint of rollout {before} is whole: "
            f"--use-previous-checkpoint goes on from it"
        )
    if dist.get_rank() == 0:
        print(f"{message}; going on from rollout {before} instead", flush=True)
    return before


def _whole_before(root: str | Path, iteration: int | None) -> int | None:
    before = files.previous_iteration(root, iteration)
    while before is not None and _union(_damage(root, before)):
        before = files.previous_iteration(root, before)
    return before


def _damage(root: str | Path, iteration: int | None) -> list[str]:
    if iteration is None:
        return []
    folder = files.iteration_dir(root, iteration)
    return list(files.damage(folder, dist.get_rank(), dist.get_world_size()))


def load(args: Namespace, state: TrainState, root: str | Path, iteration: int) -> dict[str, Any]:
    """Restore what :func:`save` wrote, on the same or another parallel layout; returns its
    ``extra``.

    The random state is restored on the same layout only: on another there is nothing it could be.

    Raises:
        CheckpointError: it is of another model, or damaged; the optimizer state is of another kind
            or cannot be divided anew.
    """
    folder = str(files.iteration_dir(root, iteration))
    common = reading(folder, lambda: dist_checkpointing.load_common_state_dict(folder))
    model = sharded_state(TrainState(state.model, None, None), loading=True, with_rng=False)
    problems = [model_problem(args, model, folder, common)]
    if state.optimizer is not None:
        problems.append(_optimizer_problem(args, state.optimizer, folder, common))
    if any(problems):
        raise CheckpointError("\n".join(filter(None, problems)))
    same_layout = common.get("layout") == layout(args)
    with_rng = same_layout and common.get("has_rng", False) and not args.no_load_rng
    allocate_offloaded(state.optimizer)
    with zero_moments(state.optimizer):
        wanted = sharded_state(state, loading=True, with_rng=with_rng)
        loaded = reading(folder, lambda: dist_checkpointing.load(wanted, folder))
        if state.optimizer is not None:
            _restore_zero_steps(loaded["optimizer"])
            with adam_settings_kept(state.optimizer):
                state.optimizer.load_state_dict(loaded["optimizer"])
    for key, chunk in keyed(state.model).items():
        chunk.module.load_state_dict(loaded[key], strict=False)
    if state.scheduler is not None and "opt_param_scheduler" in common:
        state.scheduler.load_state_dict(common["opt_param_scheduler"])
    if with_rng and "rng_state" in loaded:
        set_rng_state(loaded["rng_state"])
    return dict(common.get("slime", {}))


def _restore_zero_steps(loaded: Any) -> None:
    """Megatron does not save a step count of 0, and torch's Adam wants one."""
    if not isinstance(loaded, dict):
        return
    moments = loaded.get("state") if "param_groups" in loaded else None
    if moments and any("exp_avg" in m for m in moments.values() if isinstance(m, dict)):
        moments.setdefault("common_step", torch.tensor(0.0))
    for value in loaded.values():
        _restore_zero_steps(value)


def _optimizer_problem(
    args: Namespace, optimizer: MegatronOptimizer, folder: str, common: dict[str, Any]
) -> str:
    """Why its optimizer state cannot be loaded, and what to do; or nothing."""
    if "optimizer" not in common:
        return f"{folder} holds no optimizer state; use --no-load-optim to start one anew"
    distributed = common.get("distributed_optimizer")
    if distributed is not None and distributed != args.use_distributed_optimizer:
        return (
            f"{folder} was saved with use_distributed_optimizer={distributed}, this run has "
            f"{args.use_distributed_optimizer}, for which its optimizer state does not fit; use "
            "the same, or --no-load-optim"
        )
    if common.get("stateless_adam") and not args.use_stateless_adam:
        return (
            f"{folder} was saved with use_stateless_adam and has no moments for this run's Adam; "
            "use the same, or --no-load-optim to start one anew"
        )
    parts = sum(isinstance(key, int) for key in common["optimizer"]) or 1
    if parts != len(optimizer.chained_optimizers):
        return (
            f"{folder} has the state of {parts} optimizer(s), this run has "
            f"{len(optimizer.chained_optimizers)}: experts have their own, unless they are frozen "
            "or the checkpoint is of an older slime; --no-load-optim starts them anew"
        )
    return ""


def _on_rank_0(action: Callable[..., Any], *args: Any) -> None:
    if dist.get_rank() == 0:
        action(*args)


def _gather(value: T) -> list[T]:
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def _union(problems: Iterable[str]) -> list[str]:
    return sorted({problem for part in _gather(list(problems)) for problem in part})
