"""The file of `--sglang-config`: several models, each served by groups of engines.

    sglang:
      - name: actor
        server_groups:
          - {worker_type: prefill, num_gpus: 2, num_gpus_per_engine: 1}
          - {worker_type: decode, num_gpus: 4, overrides: {mem_fraction_static: 0.8}}
      - name: reward
        model_path: /models/reward
        server_groups: [{worker_type: regular, num_gpus: 2}]

A model without a path is that of `--hf-checkpoint`, and the only kind that gets weight updates
unless it says so itself.
"""

from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slime.arguments.check_sglang_config import check_models
from slime.arguments.errors import ConfigError, Problem


@dataclass
class ServerGroupConfig:
    """Engines of one kind.

    Attributes:
        worker_type: `regular`, `prefill`, `decode`, `encoder`, or `placeholder` (GPUs that stay
            free).
        num_gpus: GPUs of all its engines together.
        num_gpus_per_engine: Tensor-parallel size; None: that of the model.
        overrides: SGLang options of these engines alone.
    """

    worker_type: str
    num_gpus: int
    num_gpus_per_engine: int | None = None
    overrides: dict[str, Any] = field(default_factory=dict)


@dataclass
class ModelConfig:
    """A model and its engines; it has a router of its own.

    Attributes:
        name: Unique.
        model_path: Hugging Face directory; None: `--hf-checkpoint`.
        num_gpus_per_engine: For groups that do not say it; None: `--rollout-num-gpus-per-engine`.
        server_groups: Its engines.
        update_weights: Whether it is the model that is trained; None: when its path is that of
            `--hf-checkpoint`.
    """

    name: str
    model_path: str | None = None
    num_gpus_per_engine: int | None = None
    server_groups: list[ServerGroupConfig] = field(default_factory=list)
    update_weights: bool | None = None

    def resolve(self, args: Namespace) -> None:
        """Fill in, in place, what is left to the options."""
        self.model_path = self.model_path or args.hf_checkpoint
        self.num_gpus_per_engine = self.num_gpus_per_engine or args.rollout_num_gpus_per_engine
        if self.update_weights is None:
            self.update_weights = self.model_path == args.hf_checkpoint
        for group in self.server_groups:
            group.num_gpus_per_engine = group.num_gpus_per_engine or self.num_gpus_per_engine

    def num_engines(self) -> int:
        """Engines of a resolved model; a group that leaves a remainder counts whole engines."""
        return sum(
            group.num_gpus // (group.num_gpus_per_engine or 1)
            for group in self.server_groups
            if group.worker_type != "placeholder"
        )

    def has_pd_disaggregation(self) -> bool:
        """Whether prefill and decode run in engines of their own."""
        return any(group.worker_type in ("prefill", "decode") for group in self.server_groups)

    def has_encoder_disaggregation(self) -> bool:
        """Whether media are encoded in engines of their own."""
        return any(group.worker_type == "encoder" for group in self.server_groups)

    def total_num_gpus(self) -> int:
        """GPUs of all its groups."""
        return sum(group.num_gpus for group in self.server_groups)


@dataclass
class SglangConfig:
    """All models of a run."""

    models: list[ModelConfig]

    @classmethod
    def from_yaml(cls, path: str) -> "SglangConfig":
        """The models of a file.

        Raises:
            ConfigError: It cannot be read, or its form is wrong; every mistake is listed.
        """
        return cls.from_entries(read_models(path))

    @classmethod
    def from_entries(cls, entries: Any) -> "SglangConfig":
        """The models of a list that was already read; raises as `from_yaml`."""
        problems = list(check_models(entries))
        if problems:
            raise ConfigError(problems)
        models = []
        for entry in entries:
            groups = [ServerGroupConfig(**group) for group in entry["server_groups"]]
            models.append(ModelConfig(**entry | {"server_groups": groups}))
        return cls(models)

    @classmethod
    def from_prefill_num_servers(cls, args: Namespace) -> "SglangConfig":
        """One model: `--prefill-num-servers` engines prefill, the other GPUs decode."""
        prefill = args.prefill_num_servers * args.rollout_num_gpus_per_engine
        groups = [
            ServerGroupConfig("prefill", prefill),
            ServerGroupConfig("decode", args.rollout_num_gpus - prefill),
        ]
        return cls([ModelConfig("default", server_groups=groups)])

    def has_pd_disaggregation(self) -> bool:
        """Whether any model has it."""
        return any(model.has_pd_disaggregation() for model in self.models)

    def total_num_gpus(self) -> int:
        """GPUs of all models."""
        return sum(model.total_num_gpus() for model in self.models)


def read_models(path: str) -> Any:
    """What stands under `sglang:` in the file, unchecked.

    Raises:
        ConfigError: The file cannot be read or is no YAML.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            [Problem("--sglang-config", path, f"cannot be read: {reason}", "give a YAML file")]
        ) from error
    return (content.get("sglang") if isinstance(content, dict) else None) or []
