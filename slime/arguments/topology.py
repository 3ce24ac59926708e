"""Which engines a run has, and where: planned once, shown by `--dry-run`, started as planned."""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slime.arguments.sglang_config import ModelConfig, ServerGroupConfig, SglangConfig

DEFAULT_MODEL = "default"


@dataclass(frozen=True)
class EnginePlan:
    """One engine.

    Attributes:
        index: Its number among all engines of the run.
        model: The name of its model.
        model_path: The Hugging Face directory it starts from.
        worker_type: `regular`, `prefill`, `decode` or `encoder`.
        num_gpus: Its tensor-parallel size.
        num_nodes: Machines that it lies on, each with the same number of its GPUs.
        gpu_offset: Its first GPU among those of all engines.
        peers: How many engines of its kind share the requests of the model.
        overrides: SGLang options of its group alone.
        address: `http://host:port` of an engine that runs already; empty for one to be started.
    """

    index: int
    model: str
    model_path: str
    worker_type: str = "regular"
    num_gpus: int = 1
    num_nodes: int = 1
    gpu_offset: int = 0
    peers: int = 1
    overrides: Mapping[str, Any] = field(default_factory=dict)
    address: str = ""

    @property
    def gpus_per_node(self) -> int:
        """Its GPUs on each of its machines."""
        return self.num_gpus // self.num_nodes

    def gpus_of_node(self, node_rank: int) -> slice:
        """Where the GPUs of its machine number `node_rank` are among those of all engines."""
        start = self.gpu_offset + node_rank * self.gpus_per_node
        return slice(start, start + self.gpus_per_node)


@dataclass(frozen=True)
class ModelPlan:
    """A model with its engines, behind a router of its own.

    Attributes:
        name: Unique.
        update_weights: Whether it is the model that is trained.
        engines: In the order of their GPUs.
    """

    name: str
    update_weights: bool
    engines: tuple[EnginePlan, ...]

    @property
    def disaggregated(self) -> bool:
        """Whether prefill and decode run in engines of their own."""
        return any(engine.worker_type in ("prefill", "decode") for engine in self.engines)

    @property
    def encoders(self) -> tuple[EnginePlan, ...]:
        """Engines that encode media for the others; the router does not know them."""
        return tuple(engine for engine in self.engines if engine.worker_type == "encoder")


def plan_models(args: Namespace) -> tuple[ModelPlan, ...]:
    """The models of resolved arguments with their engines; none in `--debug-train-only`."""
    if args.debug_train_only:
        return ()
    if args.rollout_external_engine_addrs:
        return (_external(args),)
    plans: list[ModelPlan] = []
    index = offset = 0
    for model in _models(args):
        engines: list[EnginePlan] = []
        for group in model.server_groups:
            size = group.num_gpus_per_engine or 1
            for number in range(_engines_of(group)):
                engines.append(
                    EnginePlan(
                        index=index,
                        model=model.name,
                        model_path=str(model.model_path),
                        worker_type=group.worker_type,
                        num_gpus=size,
                        num_nodes=max(1, size // args.num_gpus_per_node),
                        gpu_offset=offset + number * size,
                        peers=_count(model, group.worker_type),
                        overrides=dict(group.overrides),
                    )
                )
                index += 1
            offset += group.num_gpus
        plans.append(ModelPlan(model.name, bool(model.update_weights), tuple(engines)))
    return tuple(plans)


def count_engines(args: Namespace) -> int:
    """How many engines `plan_models` would plan, encoders and those of frozen models among them."""
    if args.rollout_external_engine_addrs:
        return len(args.rollout_external_engine_addrs)
    return sum(_engines_of(group) for model in _models(args) for group in model.server_groups)


def has_engine_over_nodes(args: Namespace) -> bool:
    """Whether an engine that gets the trained weights lies on more than one machine."""
    return any(
        engine.num_nodes > 1
        for model in plan_models(args)
        for engine in model.engines
        if model.update_weights
    )


def _models(args: Namespace) -> list[ModelConfig]:
    """Those of `--sglang-config`, else one of the options."""
    if args.sglang_models:
        models: list[ModelConfig] = args.sglang_models
        return models
    if args.prefill_num_servers:
        (model,) = SglangConfig.from_prefill_num_servers(args).models
    else:
        group = ServerGroupConfig("regular", args.rollout_num_gpus or 0)
        model = ModelConfig(DEFAULT_MODEL, server_groups=[group])
    model.resolve(args)
    return [model]


def _external(args: Namespace) -> ModelPlan:
    addresses = args.rollout_external_engine_addrs
    engines = tuple(
        EnginePlan(
            index=index,
            model=DEFAULT_MODEL,
            model_path=args.hf_checkpoint,
            num_gpus=args.rollout_num_gpus_per_engine,
            peers=len(addresses),
            address=address if "://" in address else f"http://{address}",
        )
        for index, address in enumerate(addresses)
    )
    return ModelPlan(DEFAULT_MODEL, True, engines)


def _count(model: ModelConfig, worker_type: str) -> int:
    return sum(_engines_of(g) for g in model.server_groups if g.worker_type == worker_type)


def _engines_of(group: ServerGroupConfig) -> int:
    """How many engines a group has; none where its GPUs stay free, or are too few for one."""
    if group.worker_type == "placeholder":
        return 0
    return max(0, group.num_gpus // (group.num_gpus_per_engine or 1))
