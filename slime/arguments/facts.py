"""What the machine and the disk say: gathered once, so that resolution is a pure function of
options and facts.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from slime.arguments.device import detect_device
from slime.arguments.errors import ConfigError, Problem
from slime.arguments.eval_config import entries_of_prompt_data, read_eval_config
from slime.arguments.flag import Flag
from slime.arguments.labels import is_label, label_path, target_of
from slime.arguments.model_config import read_model_config
from slime.arguments.prompt_sources import parse_prompt_sources
from slime.arguments.raw import RawArguments, user_path
from slime.arguments.registry import all_flags
from slime.arguments.sglang_config import read_models


@dataclass(frozen=True)
class Facts:
    """Everything outside the options that the resolved arguments depend on.

    Attributes:
        device: `cpu` or `cuda`, for `--device auto`.
        directory: Where relative paths start.
        now: Time of the start, for the name of the run.
        paths: A path as given -> the absolute path.
        hf_config: The parsed config.json of --hf-checkpoint, if it could be read.
        eval_entries: Evaluation data sets as given, with absolute paths.
        eval_defaults: Their common settings.
        num_prompts: Prompts in --prompt-data, if they could be counted.
        sglang_models: What --sglang-config holds, unchecked; None if it could not be read.
    """

    device: str = "cpu"
    directory: str = "/"
    now: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)
    hf_config: dict[str, Any] | None = None
    eval_entries: tuple[Any, ...] = ()
    eval_defaults: Any = field(default_factory=dict)
    num_prompts: int | None = None
    sglang_models: Any = None


def gather_facts(
    raw: RawArguments, environment: Mapping[str, str] | None = None
) -> tuple[Facts, list[Problem]]:
    """Look at the machine and at the files that options name. Returns what was found and missed."""
    environment = os.environ if environment is None else environment
    paths, problems = _absolute_paths(raw, environment)
    entries, defaults, eval_problems = _eval_entries(raw, paths, environment)
    models, models_problems = _sglang_models(raw, paths, environment)
    facts = Facts(
        device=detect_device(environment),
        directory=str(user_path("", environment)),
        now=datetime.now().strftime("%Y%m%d-%H%M%S"),
        paths=paths,
        hf_config=_hf_config(raw, paths),
        eval_entries=tuple(entries),
        eval_defaults=defaults,
        sglang_models=models,
    )
    return facts, problems + eval_problems + models_problems


def absolute_path(value: str, environment: Mapping[str, str]) -> str | None:
    """A path or label as an absolute path; None for a label that is not built."""
    base, slice_mark, span = value.partition("@[")
    if is_label(base):
        found = label_path(base, environment)
        return None if found is None else str(found) + slice_mark + span
    return os.path.normpath(user_path(value, environment))


def _absolute_paths(
    raw: RawArguments, environment: Mapping[str, str]
) -> tuple[dict[str, str], list[Problem]]:
    paths: dict[str, str] = {}
    problems: list[Problem] = []
    for flag in all_flags():
        for value in _path_values(flag, raw.values[flag.dest]):
            path = absolute_path(value, environment)
            if path is None:
                problems.append(unbuilt_label(flag.name, value))
            paths[value] = path or value
    return paths, problems


def unbuilt_label(option: str, label: str) -> Problem:
    """The problem of a label whose target has not been built."""
    target = target_of(label)
    return Problem(
        option, label, "this Bazel target is not built", f"build it first: ./bazelw build {target}"
    )


def _path_values(flag: Flag, value: Any) -> list[str]:
    if not flag.path or value is None:
        return []
    if flag.dest == "eval_prompt_data":
        return [entry["path"] for entry in entries_of_prompt_data(value)]
    if flag.dest == "prompt_data":
        return [source.path for source in parse_prompt_sources(value) if source.path]
    return [value]


def _hf_config(raw: RawArguments, paths: Mapping[str, str]) -> dict[str, Any] | None:
    given = raw.values["hf_checkpoint"]
    try:
        return read_model_config(Path(paths[given])) if given else None
    except (OSError, ValueError):
        return None  # check_model says what is wrong with it


def _sglang_models(
    raw: RawArguments, paths: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[Any, list[Problem]]:
    """The models of --sglang-config with absolute paths."""
    given = raw.values["sglang_config"]
    if given is None or is_label(paths[given]):
        return None, []
    try:
        models = read_models(paths[given])
    except ConfigError as error:
        return None, error.problems
    problems = []
    for model in models if isinstance(models, list) else []:
        if isinstance(model, dict) and isinstance(model.get("model_path"), str):
            path = absolute_path(model["model_path"], environment)
            if path is None:
                problems.append(unbuilt_label("--sglang-config", model["model_path"]))
            model["model_path"] = path or model["model_path"]
    return models, problems


def _eval_entries(
    raw: RawArguments, paths: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[list[Any], Any, list[Problem]]:
    if raw.values["eval_config"] is not None:
        entries, defaults, problems = read_eval_config(Path(paths[raw.values["eval_config"]]))
        for number, entry in enumerate(entries):
            if isinstance(entry, dict) and isinstance(entry.get("path"), str):
                path = absolute_path(entry["path"], environment)
                if path is None:
                    problems.append(unbuilt_label("--eval-config", entry["path"]))
                entries[number] = {**entry, "path": path or entry["path"]}
        return entries, defaults, problems
    entries = entries_of_prompt_data(raw.values["eval_prompt_data"] or [])
    return [{**entry, "path": paths[entry["path"]]} for entry in entries], {}, []
