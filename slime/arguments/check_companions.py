"""Checks of options that were given and need another one, without which nothing reads them."""

import re
from argparse import Namespace
from collections.abc import Iterator
from urllib.parse import urlsplit

from slime.arguments.check_rollout import FORGED, FULLY_ASYNC
from slime.arguments.errors import Problem, option
from slime.arguments.registry import given_options
from slime.arguments.rollout import DEFAULT_ROLLOUT

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")


def check_companions(args: Namespace) -> Iterator[Problem]:
    """Options without the one that makes them work; values that are the default are let pass."""
    megatron_teacher = args.use_opd and args.opd_type == "megatron"
    needs = (
        ("opd_teacher_load", megatron_teacher, "add --use-opd --opd-type megatron"),
        ("opd_teacher_ckpt_step", args.opd_teacher_load, "add --opd-teacher-load"),
        ("opd_kl_coef", args.use_opd, "add --use-opd"),
        ("opd_type", args.use_opd, "add --use-opd"),
        ("kl_loss_coef", args.use_kl_loss, "add --use-kl-loss"),
        ("use_unbiased_kl", args.use_kl_loss, "add --use-kl-loss"),
        ("ckpt_step", args.load, "add --load"),
        ("use_previous_checkpoint", args.load, "add --load"),
        ("ref_ckpt_step", args.ref_load, "add --ref-load"),
        ("custom_tis_function_path", args.use_tis, "add --use-tis"),
        ("tis_clip", args.use_tis, "add --use-tis"),
        ("tis_clip_low", args.use_tis, "add --use-tis"),
        ("opsm_delta", args.use_opsm, "add --use-opsm"),
        (
            "keep_old_actor",
            not args.use_rollout_logprobs,
            "drop it: with --use-rollout-logprobs the engines' log-probabilities are the old ones",
        ),
        ("mask_offpolicy_in_partial_rollout", args.partial_rollout, "add --partial-rollout"),
        *(
            (dest, args.advantage_estimator == "ppo", "add --advantage-estimator ppo")
            for dest in ("critic_num_nodes", "critic_num_gpus_per_node")
        ),
        (
            "optimizer_offload_fraction",
            args.optimizer_cpu_offload,
            "add --optimizer-cpu-offload",
        ),
        (
            "update_weight_disk_dir",
            args.update_weight_transport == "disk",
            "add --update-weight-transport disk",
        ),
        *(
            (dest, args.update_weight_mode == "delta", "add --update-weight-mode delta")
            for dest in (
                "update_weight_local_checkpoint_dir",
                "update_weight_delta_encoding",
                "update_weight_delta_checksum",
            )
        ),
        (
            "max_weight_lag",
            args.rollout_function_path != DEFAULT_ROLLOUT,
            f"add --rollout-function-path {FULLY_ASYNC}",
        ),
        (
            "load_forge_rollout_data",
            args.rollout_function_path == FORGED,
            f"add --rollout-function-path {FORGED}",
        ),
        (
            "load_debug_rollout_data_subsample",
            args.load_debug_rollout_data,
            "add --load-debug-rollout-data",
        ),
    )
    given = given_options(args)
    for dest, there, remedy in needs:
        if dest in given and not there:
            yield Problem(option(dest), given[dest], "has no effect", remedy)


def check_addresses(args: Namespace) -> Iterator[Problem]:
    """Addresses of a router and of engines that run already."""
    name, port = "--sglang-router-port", args.sglang_router_port
    if args.sglang_router_ip and port is None:
        yield Problem(name, None, "needed with --sglang-router-ip", "give the router's port")
    if port is not None and not 1 <= port <= 65535:
        yield Problem(name, port, "is no port", "give a number from 1 to 65535")
    name, seen = "--rollout-external-engine-addrs", set[str]()
    for address in args.rollout_external_engine_addrs or ():
        if not _is_address(address):
            yield Problem(name, address, "is no address", "write host:port")
        elif address in seen:
            yield Problem(name, address, "stands here twice", "name each engine once")
        seen.add(address)


def _is_address(text: str) -> bool:
    place = urlsplit(text).netloc if text.startswith(("http://", "https://")) else text
    return bool(_ADDRESS.fullmatch(place)) and 1 <= int(place.rpartition(":")[2]) <= 65535
