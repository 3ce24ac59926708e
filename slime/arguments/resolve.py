"""From what was given to what is run: one pure function of the raw arguments and the facts.

It derives, it never judges: `validate.py` looks at what comes out. So it must not fail on values
that are missing or contradict each other; numbers that mean nothing do not come here
(`check_ranges.py`).
"""

from argparse import Namespace
from copy import deepcopy
from pathlib import PurePath
from typing import Any

from slime.arguments.errors import ConfigError
from slime.arguments.eval_config import build_eval_dataset_configs, entries_of_prompt_data
from slime.arguments.facts import Facts
from slime.arguments.prompt_sources import with_paths
from slime.arguments.raw import RawArguments
from slime.arguments.registry import all_flags
from slime.arguments.resolve_model import resolve_layout, resolve_model, resolve_precision
from slime.arguments.sglang_config import SglangConfig


def resolve(raw: RawArguments, facts: Facts) -> Namespace:
    """The arguments of the run. Neither `raw` nor `facts` is changed."""
    args = Namespace(**deepcopy(raw.values))
    args.raw_options = {dest: deepcopy(value_of(raw, dest)) for dest in raw.origins}
    if args.device == "auto":
        args.device = facts.device
    _resolve_paths(args, facts)
    _resolve_run(args, facts)
    _resolve_debug(args)
    _resolve_models(args, facts)
    _resolve_cluster(args, raw)
    _resolve_weights(args)
    resolve_precision(args)
    resolve_model(args, raw, facts)
    _resolve_batches(args, facts)
    _resolve_lengths(args)
    _resolve_algorithm(args)
    _resolve_evaluation(args, facts)
    _resolve_engines(args)
    return args


def value_of(raw: RawArguments, dest: str) -> Any:
    """A raw value by the key of `raw.origins`; `sglang_server_args.x` looks into the dict."""
    outer, _, inner = dest.partition(".")
    return raw.values[outer][inner] if inner else raw.values[outer]


def _resolve_paths(args: Namespace, facts: Facts) -> None:
    for flag in all_flags():
        value = getattr(args, flag.dest)
        if flag.path and isinstance(value, str) and flag.dest != "prompt_data":
            setattr(args, flag.dest, facts.paths.get(value, value))
    if args.prompt_data is not None:
        args.prompt_data = with_paths(args.prompt_data, facts.paths)
    words = args.eval_prompt_data
    if words is not None and (len(words) == 1 or len(words) % 2 == 0):
        args.eval_prompt_data = [
            word
            for entry in entries_of_prompt_data(words)
            for word in (entry["name"], facts.paths.get(entry["path"], entry["path"]))
        ]


def _resolve_run(args: Namespace, facts: Facts) -> None:
    if args.run_name is None:
        if args.run_dir is not None:
            args.run_name = PurePath(args.run_dir).name
        else:
            args.run_name = f"{_name_of_config(args.config)}-{facts.now}"
    if args.run_dir is None:
        args.run_dir = str(PurePath(facts.directory, "runs", args.run_name))
    for flag in all_flags():
        value = getattr(args, flag.dest)
        if flag.path and isinstance(value, str) and flag.dest != "run_dir":
            setattr(args, flag.dest, value.replace("{run_dir}", args.run_dir))
    if args.save is None and not args.debug_rollout_only:
        args.save = str(PurePath(args.run_dir, "checkpoints"))
    if args.save_hf is None and not args.debug_rollout_only and args.device == "cpu":
        args.save_hf = str(PurePath(args.run_dir, "hf"))
    for dest in ("save_debug_rollout_data", "load_debug_rollout_data"):
        path = getattr(args, dest)
        if path is not None and "{" not in path:  # a folder: one file per rollout in it
            setattr(args, dest, str(PurePath(path, "{rollout_id}")))
    if args.dump_details is not None:
        details = PurePath(args.dump_details)
        args.save_debug_rollout_data = args.save_debug_rollout_data or str(
            details / "rollout_data" / "{rollout_id}"
        )
        args.save_debug_train_data = args.save_debug_train_data or str(
            details / "train_data" / "{rollout_id}_{rank}"
        )


def _name_of_config(config: list[str]) -> str:
    """`examples/quickstart/config.yaml` -> quickstart: a file called config is known by its
    directory.
    """
    if not config:
        return "slime"
    path = PurePath(config[-1])
    return path.parent.name or "slime" if path.stem == "config" else path.stem


def _resolve_debug(args: Namespace) -> None:
    if args.load_debug_rollout_data is not None:
        args.debug_train_only = True  # as published: loaded rollouts need no engines


def _resolve_models(args: Namespace, facts: Facts) -> None:
    """The models of --sglang-config; [] without one, or where its form is wrong."""
    args.sglang_models = []
    if facts.sglang_models is None:
        return
    try:
        config = SglangConfig.from_entries(facts.sglang_models)
    except ConfigError:
        return  # validation lists the same problems
    for model in config.models:
        model.resolve(args)
    args.sglang_models = config.models
    if args.rollout_num_gpus is None:
        args.rollout_num_gpus = config.total_num_gpus()


def _resolve_cluster(args: Namespace, raw: RawArguments) -> None:
    on_cpu = args.device == "cpu"
    if on_cpu and not raw.given("actor_num_gpus_per_node"):
        args.actor_num_gpus_per_node = 1
    resolve_layout(args)
    if args.debug_train_only:
        args.rollout_num_gpus = 0
    elif args.rollout_external_engine_addrs:
        args.rollout_num_gpus = (
            len(args.rollout_external_engine_addrs) * args.rollout_num_gpus_per_engine
        )
    elif args.rollout_num_gpus is None and args.colocate:
        args.rollout_num_gpus = args.world_size
    elif args.rollout_num_gpus is None and on_cpu:
        args.rollout_num_gpus = args.rollout_num_gpus_per_engine
    args.rollout_num_engines = (args.rollout_num_gpus or 0) // args.rollout_num_gpus_per_engine
    if args.sglang_models:
        args.rollout_num_engines = sum(model.num_engines() for model in args.sglang_models)
    # A CPU has no second memory to move anything to.
    moves = args.offload or (args.colocate and not on_cpu)
    if args.offload_train is None:
        args.offload_train = moves and not args.release_train
    args.offload_rollout = moves if args.offload_rollout is None else args.offload_rollout
    if args.cp_comm_type is not None and len(args.cp_comm_type) == 1:
        (args.cp_comm_type,) = args.cp_comm_type  # one kind for all layers: Megatron wants a text
    if args.distributed_backend is None:
        args.distributed_backend = "gloo" if on_cpu else "nccl"


def _resolve_weights(args: Namespace) -> None:
    """Folders of the transports that write files."""
    if args.update_weight_transport == "disk" and args.update_weight_disk_dir is None:
        args.update_weight_disk_dir = str(PurePath(args.run_dir, "weights"))
    if args.update_weight_mode == "delta" and args.update_weight_local_checkpoint_dir is None:
        args.update_weight_local_checkpoint_dir = str(PurePath(args.run_dir, "weights_local"))


def _resolve_batches(args: Namespace, facts: Facts) -> None:
    prompts = args.rollout_batch_size or 0
    args.samples_per_rollout = prompts * args.n_samples_per_prompt
    if args.global_batch_size is None:
        args.global_batch_size = args.samples_per_rollout // (args.num_steps_per_rollout or 1)
    if args.num_steps_per_rollout is None:
        args.num_steps_per_rollout = args.samples_per_rollout // (args.global_batch_size or 1)
    if args.over_sampling_batch_size is None:
        args.over_sampling_batch_size = args.rollout_batch_size
    args.num_rollout_per_epoch = None
    if facts.num_prompts is not None and prompts:
        args.num_rollout_per_epoch = facts.num_prompts // prompts
    if args.num_rollout is None and args.num_epoch is not None and args.num_rollout_per_epoch:
        args.num_rollout = args.num_epoch * args.num_rollout_per_epoch
    if args.log_probs_max_tokens_per_gpu is None:
        args.log_probs_max_tokens_per_gpu = args.max_tokens_per_gpu
    args.train_iters = (args.num_rollout or 0) * args.num_steps_per_rollout
    if args.lr_decay_iters is None:
        args.lr_decay_iters = args.train_iters
    if args.lr_warmup_fraction is not None:
        args.lr_warmup_iters = int(args.lr_warmup_fraction * args.lr_decay_iters)


def _resolve_lengths(args: Namespace) -> None:
    if args.rollout_max_context_len is None:
        args.rollout_max_context_len = args.max_position_embeddings
    if args.seq_length is None:
        args.seq_length = args.rollout_max_context_len


def _resolve_algorithm(args: Namespace) -> None:
    if args.eps_clip_high is None:
        args.eps_clip_high = args.eps_clip
    trains_on_values = args.compute_advantages_and_returns and args.loss_type != "sft_loss"
    args.use_critic = args.advantage_estimator == "ppo" and trains_on_values
    args.use_critic = args.use_critic and not args.debug_rollout_only
    args.critic_own_slots = 0  # it shares the actor's
    if args.use_critic and (args.critic_num_nodes or args.critic_num_gpus_per_node):
        nodes = args.critic_num_nodes or args.actor_num_nodes
        per_node = args.critic_num_gpus_per_node or args.actor_num_gpus_per_node
        args.critic_own_slots = nodes * per_node
    args.use_reference = args.kl_coef != 0 or args.use_kl_loss
    for end in ("start_weight_decay", "end_weight_decay"):
        if getattr(args, end) is None:
            setattr(args, end, args.weight_decay)


def _resolve_evaluation(args: Namespace, facts: Facts) -> None:
    for name in ("input_key", "label_key", "tool_key", "reward_key"):
        if getattr(args, f"eval_{name}") is None:
            setattr(args, f"eval_{name}", getattr(args, name))
    sampling = (
        "temperature",
        "top_p",
        "top_k",
        "max_response_len",
        "max_prompt_len",
        "max_context_len",
    )
    for name in sampling:
        if getattr(args, f"eval_{name}") is None:
            setattr(args, f"eval_{name}", getattr(args, f"rollout_{name}"))
    if args.eval_function_path is None:
        args.eval_function_path = args.rollout_function_path
    try:
        args.eval_datasets = build_eval_dataset_configs(
            args, facts.eval_entries, facts.eval_defaults
        )
    except ConfigError:
        args.eval_datasets = []  # validation lists the same problems


def _resolve_engines(args: Namespace) -> None:
    args.sglang_server_args.setdefault("dtype", args.dtype)
    args.router_ip, args.router_port = args.sglang_router_ip, args.sglang_router_port
