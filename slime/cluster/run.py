"""Runs the whole job: Ray, engines and train ranks up, the loop, everything down again."""

import contextlib
import signal
from argparse import Namespace

from slime.arguments.errors import ConfigError
from slime.arguments.roles import args_of_role
from slime.cluster.children import Child, RunFailed, gather
from slime.cluster.gpu_turns import CRITIC, GpuTurns
from slime.cluster.local_ray import start_ray, stop_ray
from slime.cluster.loop import Loop, first_rollout
from slime.cluster.overlapped_loop import OverlappedLoop
from slime.cluster.placement import check_engine_nodes, create_placement_groups
from slime.cluster.release import Release
from slime.cluster.roles import create_rollout_manager, create_training_models, start_training
from slime.cluster.supervisor import Interrupted, Supervisor
from slime.cluster.train_actor import TrainGroup
from slime.engines.external import apply_external_engine_info_to_args
from slime.tracking.report import RunReport


def run(args: Namespace, overlapped: bool = False) -> int:
    """Run the job that ``args`` describe; returns the exit code (0 only if nothing failed).

    ``overlapped``: generate the next rollout while one trains.
    """
    report = RunReport(args)
    supervisor = Supervisor()
    try:
        if args.rollout_external_engine_addrs and not args.debug_train_only:
            report.stage("looking at the external engines")
            apply_external_engine_info_to_args(args)
        with supervisor:
            _run(args, report, supervisor, OverlappedLoop if overlapped else Loop)
    except Interrupted as interrupt:
        report.interrupted(signal.Signals(interrupt.number).name)
        return 128 + interrupt.number
    except ConfigError as error:
        report.failed(str(error))
        return 2
    except (RunFailed, TimeoutError, ConnectionError) as error:
        report.failed(str(error))
        return 1
    report.finished(supervisor.peak_memory_bytes)
    return 0


def _run(args: Namespace, report: RunReport, supervisor: Supervisor, loop_type: type[Loop]) -> None:
    report.stage("starting Ray")
    start_ray(args, supervisor.scratch)
    supervisor.take_signals()
    supervisor.before_end(stop_ray, even_if_failed=True)
    slots = create_placement_groups(args)
    check_engine_nodes(args, slots["rollout"])
    manager = create_rollout_manager(args, slots["rollout"])
    supervisor.before_end(lambda: _stop_engines(manager))
    train = None if args.debug_rollout_only else create_training_models(args, slots["actor"])
    critic = None
    if args.use_critic:
        critic = create_training_models(args, slots["critic"], role="critic")
    report.stage(_starting(args))
    release = Release(args, slots["actor"], train) if args.release_train and train else None
    turns = GpuTurns(args, manager, train, critic, release)
    starting = [manager.call("start")]
    if args.offload_rollout:  # the engines must be out before a trainer comes in
        gather(starting)
    turns.to_training()
    starting += start_training(train) if train else []
    if turns.trainers_share:
        gather(starting)
        turns.to_training(CRITIC)
    starting_critic = start_training(critic) if critic else []
    has_engines, *loaded = gather(starting)
    gather(starting_critic)
    start = first_rollout(args, loaded)
    loop = _make_loop(loop_type, args, report, manager, train, critic, turns, has_engines, start)
    report.begin(loop.start_rollout_id, loop.num_rollout)
    loop.run()


def _make_loop(
    loop_type: type[Loop],
    args: Namespace,
    report: RunReport,
    manager: Child,
    train: TrainGroup | None,
    critic: TrainGroup | None,
    turns: GpuTurns,
    has_engines: bool,
    start: int,
) -> Loop:
    if train:
        groups = [train, critic] if critic else [train]
        configs = gather([group.ranks[0].call("parallel_config") for group in groups])
        gather([manager.call("set_parallel_config", *configs)])
    if start > 0:
        gather([manager.call("load", start - 1)])
    (per_epoch,) = gather([manager.call("num_rollout_per_epoch")])
    num_rollout = args.num_rollout
    if num_rollout is None:
        num_rollout = args.num_epoch * per_epoch
    return loop_type(
        args=args,
        report=report,
        manager=manager,
        train=train,
        critic=critic,
        has_engines=has_engines,
        start_rollout_id=start,
        num_rollout=num_rollout,
        num_rollout_per_epoch=per_epoch,
        turns=turns,
    )


def _stop_engines(manager: Child) -> None:
    with contextlib.suppress(RunFailed):  # the supervisor ends what is left
        gather([manager.call("stop")])


def _starting(args: Namespace) -> str:
    parts = []
    if not args.debug_train_only:
        parts.append(f"the router and {args.rollout_num_engines} SGLang engine(s)")
    if not args.debug_rollout_only:
        parts.append(f"{args.world_size} Megatron train rank(s)")
    if args.use_critic:
        parts.append(f"{args_of_role(args, 'critic').world_size} critic rank(s)")
    return "starting " + " and ".join(parts)
