"""The import paths users of slime code against, and the rooms that really hold the code.

One table, `PUBLISHED`, maps each published module to its room. A string entry means that the
published module *is* the room's module (one object under two names, so isinstance, pickling and
monkey-patching see one thing). A mapping entry gathers names from several modules; each name is
imported when it is asked for, so `slime.utils.misc.load_function` never pulls in torch.

`import slime` installs a finder for these names and does nothing else. Published modules whose real
path is the published one (`slime.agent.*`, `slime.rollout.sglang_rollout`, ...) need no entry.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any


def _names(module: str, *names: str) -> dict[str, str]:
    """Entries of a gathering module: every name in `names` is found in `module`."""
    return dict.fromkeys(names, module)


_MATH = "slime.rewards.math_answers"
_TO_HF = "slime.trainer.megatron_to_hf"
_FROM_HF = "slime.trainer.hf_to_megatron"

PUBLISHED: dict[str, str | Mapping[str, str]] = {
    # samples, data
    "slime.utils.types": "slime.samples.sample",
    "slime.utils.data": _names("slime.data.prompts", "Dataset", "filter_long_prompt", "read_file")
    | _names("slime.cluster.rollout_data", "process_rollout_data"),
    "slime.utils.mask_utils": "slime.data.loss_masks",
    "slime.rollout.data_source": _names(
        "slime.data.source", "DataSource", "RolloutDataSource", "RolloutDataSourceWithBuffer"
    )
    | _names("slime.filters.buffer", "pop_first"),
    "slime.observability.rollout_data_utils": _names(
        "slime.data.debug_dump", "load_debug_rollout_data", "save_debug_rollout_data"
    )
    | _names(
        "slime.trainer.rollout_tensors",
        "tensorize_rollout_data_for_training",
        "validate_rollout_routed_experts_for_replay",
    ),
    # rewards
    "slime.rollout.rm_hub": _names("slime.rewards.dispatch", "async_rm", "batched_async_rm")
    | _names("slime.rewards.deepscaler", "get_deepscaler_rule_based_reward")
    | _names(_MATH, "grade_answer_verl"),
    "slime.rollout.rm_hub.deepscaler": "slime.rewards.deepscaler",
    "slime.rollout.rm_hub.f1": "slime.rewards.f1",
    "slime.rollout.rm_hub.gpqa": "slime.rewards.gpqa",
    "slime.rollout.rm_hub.math_dapo_utils": "slime.rewards.dapo",
    "slime.rollout.rm_hub.math_utils": _MATH,
    # filters, hooks, schedules
    "slime.rollout.filter_hub.base_types": "slime.filters.base_types",
    "slime.rollout.filter_hub.dynamic_sampling_filters": "slime.filters.dynamic_sampling",
    "slime.rollout.sample_hooks": "slime.hooks.sample_hooks",
    "slime.utils.dp_schedule": "slime.schedules.dp_schedule",
    "slime.utils.flops_utils": "slime.schedules.flops",
    "slime.utils.seqlen_balancing": _names(
        "slime.schedules.seqlen_balancing", "get_seqlen_balanced_partitions"
    )
    | _names("slime.schedules.packing", "expand_bins_by_splitting", "first_fit_pack"),
    # arguments
    "slime.utils.arguments": _names("slime.arguments", "parse_args", "parse_megatron_role_args"),
    "slime.utils.eval_config": "slime.arguments.eval_config",
    "slime.backends.megatron_utils.arguments": _names(
        "slime.arguments.megatron", "set_default_megatron_args"
    ),
    "slime.backends.sglang_utils.arguments": _names("slime.arguments.sglang", "validate_args"),
    # algorithms
    "slime.utils.ppo_utils": _names("slime.algorithms.log_probs", "calculate_log_probs_and_entropy")
    | _names("slime.algorithms.kl", "compute_approx_kl", "compute_gspo_kl", "compute_opsm_mask")
    | _names("slime.algorithms.losses", "compute_cispo_loss", "compute_policy_loss")
    | _names(
        "slime.algorithms.advantages",
        "chunked_discounted_returns",
        "chunked_gae",
        "get_advantages_and_returns_batch",
        "get_grpo_returns",
        "get_reinforce_plus_plus_baseline_advantages",
        "get_reinforce_plus_plus_returns",
        "vanilla_gae",
    ),
    # rollout
    "slime.utils.async_utils": "slime.rollout.async_loop",
    "slime.utils.http_utils": "slime.rollout.http_client",
    "slime.utils.processing_utils": _names(
        "slime.rollout.multimodal", "build_processor_kwargs", "encode_image_for_rollout_engine"
    )
    | _names("slime.rollout.tokenizer", "load_tokenizer"),
    "slime.utils.misc": _names("slime.hooks.loading", "load_function")
    | _names("slime.samples.meta_info", "decode_int32_meta_array")
    | _names("slime.cluster.periodic", "should_run_periodic_action")
    | _names("slime.launch.commands", "exec_command")
    | _names("slime.cluster.singleton", "SingletonMeta"),
    # trainer
    "slime.backends.megatron_utils.cp_utils": "slime.trainer.cp_utils",
    "slime.backends.megatron_utils.hf_checkpoint_saver": "slime.trainer.hf_checkpoint_saver",
    "slime.backends.megatron_utils.hf_to_megatron": _names(
        "slime.trainer.hf_weights", "load_hf_weights"
    ),
    "slime.backends.megatron_utils.hf_to_megatron.common": f"{_FROM_HF}.common",
    "slime.backends.megatron_utils.hf_to_megatron.deepseek": f"{_FROM_HF}.deepseek",
    "slime.backends.megatron_utils.hf_to_megatron.glm": f"{_FROM_HF}.glm",
    "slime.backends.megatron_utils.hf_to_megatron.qwen": f"{_FROM_HF}.qwen",
    "slime.backends.megatron_utils.hf_to_megatron.qwen3_5": f"{_FROM_HF}.qwen3_5",
    "slime.backends.megatron_utils.hf_to_megatron.qwen3_next": f"{_FROM_HF}.qwen3_next",
    "slime.backends.megatron_utils.initialize": "slime.trainer.initialize",
    "slime.backends.megatron_utils.loss": _names(
        "slime.trainer.advantages", "compute_advantages_and_returns"
    )
    | _names("slime.trainer.value_loss", "get_values"),
    "slime.backends.megatron_utils.megatron_to_hf": _names(
        f"{_TO_HF}.convert", "convert_to_hf", "remove_padding"
    ),
    "slime.backends.megatron_utils.megatron_to_hf.deepseekv3": f"{_TO_HF}.deepseekv3",
    "slime.backends.megatron_utils.megatron_to_hf.glm4": f"{_TO_HF}.glm4",
    "slime.backends.megatron_utils.megatron_to_hf.glm4moe": f"{_TO_HF}.glm4moe",
    "slime.backends.megatron_utils.megatron_to_hf.mimo": f"{_TO_HF}.mimo",
    "slime.backends.megatron_utils.megatron_to_hf.minimax_m2": f"{_TO_HF}.minimax_m2",
    "slime.backends.megatron_utils.megatron_to_hf.qwen2": f"{_TO_HF}.qwen2",
    "slime.backends.megatron_utils.megatron_to_hf.qwen3_5": f"{_TO_HF}.qwen3_5",
    "slime.backends.megatron_utils.megatron_to_hf.qwen3_next": f"{_TO_HF}.qwen3_next",
    "slime.backends.megatron_utils.megatron_to_hf.qwen3moe": f"{_TO_HF}.qwen3moe",
    "slime.backends.megatron_utils.model_provider": "slime.trainer.model_provider",
    "slime.backends.megatron_utils.server.arguments": "slime.trainer.server_arguments",
    "slime.backends.megatron_utils.stateless_adam": "slime.trainer.stateless_adam",
    "slime.utils.memory_utils": "slime.trainer.memory",
    "slime.utils.reloadable_process_group": "slime.trainer.reloadable_process_group",
    # engines
    "slime.backends.sglang_utils.external": "slime.engines.external",
    "slime.backends.sglang_utils.sglang_config": "slime.arguments.sglang_config",
    "slime.utils.health_monitor": "slime.engines.health_monitor",
    # cluster
    "slime.ray.placement_group": _names("slime.cluster.placement", "create_placement_groups")
    | _names("slime.cluster.roles", "create_rollout_manager", "create_training_models"),
    "slime.ray.rollout": _names("slime.cluster.server_group", "ServerGroup"),
    "slime.ray.rollout_validation": "slime.cluster.rollout_validation",
    # launch
    "slime.utils.external_utils.command_utils": "slime.launch.commands",
    # tracking
    "slime.observability.logging_utils": _names("slime.tracking.log", "configure_logger")
    | _names("slime.tracking.backends", "finish_tracking", "init_tracking"),
    "slime.observability.trace_utils": "slime.tracking.trace",
    "slime.observability.train_data_utils": "slime.trainer.train_data_dump",
    "slime.observability.train_metric_utils": "slime.trainer.metrics",
}


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


_PACKAGES = frozenset(parent for name in PUBLISHED for parent in _parents(name)) - {"slime"}


def _import_room(published: str, target: str) -> ModuleType:
    """Import `target`; a room that is absent is reported in terms of the published path."""
    try:
        return importlib.import_module(target)
    except ModuleNotFoundError as error:
        if error.name is None or not (target + ".").startswith(error.name + "."):
            raise
        room = ".".join(target.split(".")[:2])
        raise ImportError(
            f"{published} belongs to the room {room} (module {target}), which is not part of this "
            "installation",
            name=published,
        ) from error


class _AliasLoader(Loader):
    """Loads a published module as the very module object of its room."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = _import_room(spec.name, self._target)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import machinery has just put the alias's spec on the module: give the real one back.
        module.__spec__ = self._spec


class _GatheringModule(ModuleType):
    """A published module (or package) whose names live in several modules, each imported on first
    use.
    """

    def __init__(self, name: str, sources: Mapping[str, str]) -> None:
        super().__init__(name, f"Published names of {name}; the code lives in its rooms.")
        self._sources = sources
        self.__all__ = sorted(sources)

    def __getattr__(self, name: str) -> Any:
        sources = self.__dict__.get("_sources", {})
        if name not in sources:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(_import_room(f"{self.__name__}.{name}", sources[name]), name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._sources})


class _GatheringLoader(Loader):
    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _GatheringModule(spec.name, self._sources)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing runs: names are looked up when they are used."""


class PublishedPathFinder(MetaPathFinder):
    """Finds published modules and the packages above them; every other import is untouched.

    A package above them is a room where this installation has it (`slime.rollout`), else synthetic.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a published module or of a package above one; None for any other name."""
        entry = PUBLISHED.get(fullname)
        if isinstance(entry, str):
            return ModuleSpec(fullname, _AliasLoader(entry), origin=entry)
        is_package = fullname in _PACKAGES
        if entry is None and is_package:
            room = PathFinder.find_spec(fullname, path)
            if room is not None and room.origin is not None:  # a folder without code has no origin
                return room
        if entry is None and not is_package:
            return None
        return ModuleSpec(fullname, _GatheringLoader(entry or {}), is_package=is_package)


def install() -> None:
    """Put the finder in front of `sys.meta_path`, once."""
    if not any(isinstance(finder, PublishedPathFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PublishedPathFinder())
