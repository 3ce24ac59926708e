"""Evaluation data sets and their settings; what a data set does not say comes from the defaults,
then from the arguments.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from slime.arguments.errors import ConfigError, Problem, did_you_mean

# Field -> attributes of the arguments it falls back to, in order.
_FALLBACKS: dict[str, tuple[str, ...]] = {
    "rm_type": ("rm_type",),
    "custom_rm_path": ("custom_rm_path",),
    "input_key": ("eval_input_key", "input_key"),
    "label_key": ("eval_label_key", "label_key"),
    "tool_key": ("eval_tool_key", "tool_key"),
    "metadata_key": ("metadata_key",),
    "multimodal_keys": ("multimodal_keys",),
    "apply_chat_template": ("apply_chat_template",),
    "apply_chat_template_kwargs": ("apply_chat_template_kwargs",),
    "n_samples_per_eval_prompt": ("n_samples_per_eval_prompt",),
    "temperature": ("eval_temperature", "rollout_temperature"),
    "top_p": ("eval_top_p", "rollout_top_p"),
    "top_k": ("eval_top_k", "rollout_top_k"),
    "max_response_len": ("eval_max_response_len", "rollout_max_response_len"),
    "stop": ("rollout_stop",),
    "stop_token_ids": ("rollout_stop_token_ids",),
    "min_new_tokens": ("eval_min_new_tokens",),
    "skip_special_tokens": ("rollout_skip_special_tokens",),
    "custom_generate_function_path": ("custom_generate_function_path",),
}


@dataclass
class EvalDatasetConfig:
    """One evaluation data set. None means: not said here."""

    name: str
    path: str
    rm_type: str | None = None
    custom_rm_path: str | None = None
    input_key: str | None = None
    label_key: str | None = None
    tool_key: str | None = None
    metadata_key: str | None = None
    multimodal_keys: dict[str, str] | None = None
    apply_chat_template: bool | None = None
    apply_chat_template_kwargs: dict[str, Any] | None = None
    n_samples_per_eval_prompt: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_response_len: int | None = None
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    min_new_tokens: int | None = None
    repetition_penalty: float | None = None
    skip_special_tokens: bool | None = None
    no_stop_trim: bool | None = None
    custom_generate_function_path: str | None = None
    app_service: str | None = None
    eval_task_timeout: int | None = None
    min_eval_samples: int | None = None
    eval_early_stop_remaining: int | None = None
    eval_early_stop_idle_timeout: float | None = None
    message_processor: dict[str, Any] | None = None
    reward_model: dict[str, Any] | None = None
    remote_environment: dict[str, Any] | None = None
    metadata_overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def cache_key(self) -> tuple[Any, ...]:
        """What the loaded prompts depend on: two data sets with the same key can share them."""
        return (
            self.name,
            self.path,
            self.input_key,
            self.label_key,
            self.tool_key,
            self.metadata_key,
            _hashable(self.multimodal_keys),
            self.apply_chat_template,
            _hashable(self.apply_chat_template_kwargs),
        )

    def inject_metadata(self, sample_metadata: Any) -> dict[str, Any]:
        """A sample's metadata with the overrides of this data set laid over it."""
        metadata = dict(sample_metadata) if isinstance(sample_metadata, Mapping) else {}
        return metadata | self.metadata_overrides


def build_eval_dataset_configs(
    args: Any, raw_config: Iterable[dict[str, Any]], defaults: dict[str, Any]
) -> list[EvalDatasetConfig]:
    """Data sets with every setting filled in: from the entry, else `defaults`, else the arguments.

    Raises:
        ConfigError: An unknown key, a missing name or path, a name used twice.
    """
    entries = list(raw_config)
    problems = check_eval_entries(entries, defaults)
    if problems:
        raise ConfigError(problems)
    return [_fill(entry, defaults, vars(args)) for entry in entries]


def check_eval_entries(entries: list[Any], defaults: Any) -> list[Problem]:
    """Every mistake in the entries and defaults of an evaluation config."""
    problems: list[Problem] = []
    known = [item.name for item in fields(EvalDatasetConfig)]
    places: list[tuple[str, Any]] = [("defaults", defaults)]
    places += [(f"datasets[{number}]", entry) for number, entry in enumerate(entries)]
    names: set[str] = set()
    for place, mapping in places:
        if not isinstance(mapping, Mapping):
            problems.append(Problem(f"--eval-config {place}", mapping, "not a mapping"))
            continue
        for key in mapping:
            if key not in known:
                remedy = did_you_mean(str(key), known) or "known: " + ", ".join(known)
                problems.append(
                    Problem(f"--eval-config {place}.{key}", mapping[key], "no such setting", remedy)
                )
        if place != "defaults":
            for key in ("name", "path"):
                if not isinstance(mapping.get(key), str):
                    problems.append(
                        Problem(f"--eval-config {place}.{key}", mapping.get(key), "needs a text")
                    )
            name = str(mapping.get("name"))
            if name in names:
                problems.append(
                    Problem(
                        f"--eval-config {place}.name", name, "used twice", "give each its own name"
                    )
                )
            names.add(name)
    return problems


def read_eval_config(path: Path) -> tuple[list[Any], Any, list[Problem]]:
    """(data sets, defaults, problems) of an `--eval-config` file; only its form is checked."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return [], {}, [Problem("--eval-config", str(path), f"cannot be read: {error}")]
    section = content.get("eval", content) if isinstance(content, dict) else None
    if not isinstance(section, dict) or not isinstance(section.get("datasets"), list):
        message = "holds no list of data sets"
        return (
            [],
            {},
            [
                Problem(
                    "--eval-config",
                    str(path),
                    message,
                    "write eval: {defaults: {...}, datasets: [...]}",
                )
            ],
        )
    return section["datasets"], section.get("defaults") or {}, []


def entries_of_prompt_data(words: list[str]) -> list[dict[str, Any]]:
    """The entries of `--eval-prompt-data`: pairs of name and path, or one path alone."""
    if len(words) == 1:
        return [{"name": Path(words[0].split("@")[0]).stem, "path": words[0]}]
    return [
        {"name": name, "path": path} for name, path in zip(words[::2], words[1::2], strict=False)
    ]


def _fill(
    entry: Mapping[str, Any], defaults: Mapping[str, Any], args: Mapping[str, Any]
) -> EvalDatasetConfig:
    values = {**defaults, **entry}
    for name, attributes in _FALLBACKS.items():
        if values.get(name) is None:
            found = (args.get(attribute) for attribute in attributes)
            values[name] = next((value for value in found if value is not None), None)
    return EvalDatasetConfig(**values)


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(item)) for key, item in value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
