"""Checks of the algorithm's options: what contradicts, what has no effect, what is missing for it
to work.
"""

from argparse import Namespace
from collections.abc import Iterator

from slime.arguments.check_rollout import DISTILLATION
from slime.arguments.errors import Problem, did_you_mean
from slime.arguments.raw import RawArguments
from slime.arguments.reward import BOXED_PREFIX, DICT_REWARD_KEYS, GRADERS
from slime.arguments.rollout import DEFAULT_ROLLOUT

_GROUP_BASELINE = ("grpo", "gspo", "cispo", "rloo", "reinforce_plus_plus_baseline")


def check_advantages(args: Namespace) -> Iterator[Problem]:
    """Advantages that would be zero or cannot be computed."""
    own = args.custom_advantage_function_path or args.custom_reward_post_process_path
    trains_on_reward = args.loss_type == "policy_loss" and args.compute_advantages_and_returns
    if (
        trains_on_reward
        and not own
        and not args.use_opd
        and not args.debug_rollout_only
        and args.advantage_estimator in _GROUP_BASELINE
        and args.rewards_normalization
        and args.n_samples_per_prompt == 1
    ):
        message = (
            f"{args.advantage_estimator} compares the samples of a prompt: with one, every "
            "advantage is 0"
        )
        remedy = "give 2 or more, or another --advantage-estimator"
        yield Problem("--n-samples-per-prompt", 1, message, remedy)
    if args.num_critic_only_steps and not args.use_critic:
        message = f"{args.advantage_estimator} has no critic"
        yield Problem(
            "--num-critic-only-steps",
            args.num_critic_only_steps,
            message,
            "use --advantage-estimator ppo",
        )
    elif args.num_rollout and args.num_critic_only_steps >= args.num_rollout:
        message = f"the actor would never train: there are {args.num_rollout} rollouts"
        remedy = f"give less than {args.num_rollout}"
        yield Problem("--num-critic-only-steps", args.num_critic_only_steps, message, remedy)
    if args.loss_type == "custom_loss" and args.custom_loss_function_path is None:
        remedy = "name the loss function"
        yield Problem(
            "--custom-loss-function-path", None, "needed with --loss-type custom_loss", remedy
        )
    if args.tis_clip_low > args.tis_clip:
        message = f"is above --tis-clip {args.tis_clip}"
        yield Problem(
            "--tis-clip-low", args.tis_clip_low, message, "give a lower bound below the upper one"
        )
    if args.use_tis and args.use_rollout_logprobs:
        message = (
            "both correct for the same difference: with the engines' log-probabilities as old "
            "ones it is gone"
        )
        yield Problem("--use-tis", True, message, "drop --use-tis or --use-rollout-logprobs")
    if args.eps_clip_c is not None and args.eps_clip_c <= 1:
        message = "must be above 1: a bound of 1 or less would clip what is on-policy"
        yield Problem("--eps-clip-c", args.eps_clip_c, message, "3 is usual")


def check_kl(args: Namespace) -> Iterator[Problem]:
    """A KL term needs a reference, and only one place."""
    if args.use_reference and args.ref_load is None and not args.debug_rollout_only:
        cause = "--use-kl-loss" if args.use_kl_loss else f"--kl-coef {args.kl_coef:g}"
        remedy = f"give --ref-load {args.hf_checkpoint or 'PATH'}, or switch the KL off"
        yield Problem("--ref-load", None, f"{cause} needs a reference model", remedy)
    if args.kl_coef != 0 and args.use_kl_loss and args.kl_loss_coef != 0:
        message = "the KL would count twice: in the reward and in the loss (--kl-loss-coef)"
        yield Problem("--kl-coef", args.kl_coef, message, "set one of the two to 0")
    if args.ref_update_interval is not None and not args.use_reference:
        message = "there is no reference to update"
        remedy = "add --use-kl-loss or --kl-coef, or leave it out"
        yield Problem("--ref-update-interval", args.ref_update_interval, message, remedy)
    if args.use_opd and args.opd_type is None:
        yield Problem("--opd-type", None, "needed with --use-opd", "give sglang or megatron")
    if args.use_opd and args.opd_type == "megatron" and args.opd_teacher_load is None:
        yield Problem(
            "--opd-teacher-load",
            None,
            "needed with --opd-type megatron",
            "give the teacher's weights",
        )
    own = args.custom_rm_path or args.custom_generate_function_path or args.debug_train_only
    if args.opd_type == "sglang" and args.use_opd and not own:
        if args.rollout_function_path == DEFAULT_ROLLOUT and not args.rollout_sample_hook_path:
            message = "nobody asks the teacher for its log-probabilities"
            yield Problem("--opd-type", "sglang", message, f"add --custom-rm-path {DISTILLATION}")


def check_reward(args: Namespace, data_names_grader: bool) -> Iterator[Problem]:
    """Who grades, and which number of a mapping is the reward.

    Args:
        data_names_grader: The data's metadata says `rm_type` per sample.
    """
    if args.debug_train_only:
        return
    has_own_way = (
        args.custom_rm_path
        or args.custom_generate_function_path
        or args.use_opd
        or args.loss_type == "sft_loss"
        or args.rollout_function_path != DEFAULT_ROLLOUT
        or data_names_grader
    )
    if args.rm_type is None and not has_own_way:
        remedy = "give --rm-type (" + ", ".join(GRADERS) + ") or --custom-rm-path"
        yield Problem("--rm-type", None, "nobody grades the samples", remedy)
    yield from _check_grader(
        "--rm-type", args.rm_type, args.custom_rm_path, args.reward_key, "--reward-key"
    )
    if args.rm_type == "remote_rm" and args.rm_url is None:
        yield Problem(
            "--rm-url", None, "needed with --rm-type remote_rm", "give the grader's address"
        )
    for dataset in args.eval_datasets:
        if dataset.rm_type != args.rm_type:
            place = f"evaluation data {dataset.name}: rm_type"
            yield from _check_grader(
                place,
                dataset.rm_type,
                dataset.custom_rm_path,
                args.eval_reward_key,
                "--eval-reward-key",
            )


def _check_grader(
    place: str, rm_type: str | None, custom: str | None, key: str | None, key_option: str
) -> Iterator[Problem]:
    if rm_type is None or custom is not None:
        return
    plain = rm_type.removeprefix(BOXED_PREFIX)
    if plain not in GRADERS:
        remedy = did_you_mean(plain, GRADERS) or "known: " + ", ".join(GRADERS)
        yield Problem(place, rm_type, "no such grader", remedy)
    keys = DICT_REWARD_KEYS.get(plain)
    if keys and key is None:
        message = f"needed: {rm_type} grades with a mapping of " + ", ".join(keys)
        yield Problem(key_option, None, message, f"give {key_option} {keys[0]}")
    elif keys and key not in keys:
        yield Problem(
            key_option,
            key,
            f"{rm_type} grades with a mapping of " + ", ".join(keys),
            f"give {keys[0]}",
        )


def check_modes(args: Namespace, raw: RawArguments) -> Iterator[Problem]:
    """Debug modes, evaluation, precision and schedule."""
    if args.debug_rollout_only and args.debug_train_only:
        name = (
            "--load-debug-rollout-data"
            if raw.values["load_debug_rollout_data"]
            else "--debug-train-only"
        )
        yield Problem("--debug-rollout-only", True, f"contradicts {name}", "keep one of the two")
    elif args.debug_train_only and not (
        args.load_debug_rollout_data or args.rollout_function_path != DEFAULT_ROLLOUT
    ):
        remedy = "give --load-debug-rollout-data, or a --rollout-function-path without engines"
        yield Problem("--debug-train-only", True, "there is nothing to train on", remedy)
    if (
        args.eval_interval is not None
        and not args.eval_datasets
        and raw.values["eval_config"] is None
    ):
        if not raw.given("eval_function_path") and not args.debug_train_only:
            remedy = "give --eval-prompt-data or --eval-config"
            yield Problem(
                "--eval-interval", args.eval_interval, "there is nothing to evaluate on", remedy
            )
    if sum((args.bf16, args.fp16, args.fp32)) > 1:
        names = [f"--{name}" for name in ("bf16", "fp16", "fp32") if getattr(args, name)]
        yield Problem(names[0], True, f"contradicts {names[1]}", "keep one precision")
    if args.only_train_params_name_list and args.freeze_params_name_list:
        message = "contradicts --freeze-params-name-list"
        yield Problem(
            "--only-train-params-name-list",
            args.only_train_params_name_list,
            message,
            "keep one of the two",
        )
    if not args.debug_rollout_only:
        yield from check_schedule(args)


def check_schedule(args: Namespace) -> Iterator[Problem]:
    """Learning rate, its warm-up, and recomputation."""
    if args.rollout_temperature == 0:
        message = "a greedy rollout has no log-probabilities to train on"
        yield Problem(
            "--rollout-temperature",
            0.0,
            message,
            "give a number above 0; --eval-temperature may be 0",
        )
    if args.lr is None:
        yield Problem("--lr", None, "needed", "give the learning rate, such as 1e-6")
    elif args.min_lr > args.lr:
        yield Problem("--min-lr", args.min_lr, f"is above --lr {args.lr:g}", "give at most --lr")
    if args.train_iters and args.lr_warmup_iters >= args.lr_decay_iters:
        message = (
            f"the schedule has only {args.lr_decay_iters} steps (--lr-decay-iters, else all of "
            "the run)"
        )
        yield Problem(
            "--lr-warmup-iters", args.lr_warmup_iters, message, "give fewer warm-up steps"
        )
    if args.recompute_granularity == "full" and args.recompute_method is None:
        remedy = "give uniform or block, and --recompute-num-layers"
        yield Problem(
            "--recompute-method", None, "needed with --recompute-granularity full", remedy
        )
    elif args.recompute_granularity == "full" and args.recompute_num_layers is None:
        message = f"needed with --recompute-method {args.recompute_method}"
        yield Problem(
            "--recompute-num-layers", None, message, "give 1 to recompute every layer by itself"
        )
