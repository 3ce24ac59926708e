"""A Ray of the run's own, or the cluster that the user named with ``--ray-address``."""

import logging
import os
import secrets
from argparse import Namespace

import ray

from slime.cluster.processes import RUN_ID_VARIABLE

_OBJECT_STORE_BYTES = 256 * 1024**2
# Ray would start one idle worker per CPU; the run knows its own processes.
_NO_SPARE_WORKERS = {
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # `gather` reports the first error, with its cause
}
# What the workers of a cluster that was started by somebody else must have of this process.
_PASSED_ON = (RUN_ID_VARIABLE, "SPT_NOENV", "PYTHONPATH", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")


def start_ray(args: Namespace, scratch: str) -> None:
    """Start a local Ray under ``scratch``, or join ``args.ray_address``.

    A Ray that somebody else runs on this machine is never joined: only the option names one,
    neither ``RAY_ADDRESS`` nor Ray's own record of the latest cluster does.
    """
    options = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": _namespace()}
    if args.ray_address:
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        try:
            ray.init(address=args.ray_address, runtime_env={"env_vars": environment}, **options)
        except ConnectionError as error:
            raise ConnectionError(
                f"--ray-address = {args.ray_address}: {error}; start Ray there (ray start --head); "
                "if it asks for a token, set RAY_AUTH_MODE=token as for any Ray client"
            ) from None
        return
    os.environ.update(_NO_SPARE_WORKERS)
    # A token of the run's own: else Ray writes one into the home folder, for all clusters to come.
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    ray.init(
        address="local",
        num_cpus=max(os.cpu_count() or 1, _slots(args)),
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        _temp_dir=os.path.join(scratch, "ray"),
        _node_ip_address="127.0.0.1",
        **options,
    )


def stop_ray() -> None:
    """Leave or end Ray; safe to call when it never started."""
    ray.shutdown()


def _namespace() -> str:
    return "slime-" + os.environ[RUN_ID_VARIABLE]


def _slots(args: Namespace) -> int:
    """CPU slots that the placement groups ask for: on a CPU, one per train rank and engine."""
    trained = args.world_size + args.critic_own_slots
    return trained + args.rollout_num_engines * args.rollout_num_gpus_per_engine
