"""Checks of the files of prompts, and of the directories the run writes."""

import glob
import os
import re
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from slime.arguments.data import MEDIA
from slime.arguments.errors import Problem, did_you_mean, option
from slime.arguments.eval_config import check_eval_entries
from slime.arguments.facts import Facts
from slime.arguments.labels import is_label
from slime.arguments.prompt_sources import (
    PromptSource,
    check_prompt_sources,
    check_shares,
    parse_prompt_sources,
)
from slime.arguments.raw import RawArguments
from slime.arguments.reward import grades_by_label
from slime.arguments.scan_data import Key, Scan, scan_prompts

_DEFAULT_SOURCES = (
    "slime.rollout.data_source.RolloutDataSourceWithBuffer",
    "slime.rollout.data_source.RolloutDataSource",
)
_SECONDS_FOR_READING = 0.7  # of all prompt files together; what lies beyond is counted, not parsed


def scan_train_data(raw: RawArguments, facts: Facts) -> Scan:
    """Look through --prompt-data, where the run will read it."""
    values = raw.values
    replays = values["load_debug_rollout_data"] is not None
    if (
        replays
        or not values["rollout_global_dataset"]
        or values["data_source_path"] not in _DEFAULT_SOURCES
    ):
        return Scan()
    given = values["prompt_data"]
    if given is None:
        remedy = "give a file of prompts (.jsonl or .parquet)"
        return Scan([Problem("--prompt-data", None, "needed", remedy)])
    sources = parse_prompt_sources(given)
    deadline = time.monotonic() + _SECONDS_FOR_READING
    scans = [_scan_source(source, raw, facts, deadline) for source in sources]
    counts = [scan.count for scan in scans if scan.count is not None]
    problems = [*check_prompt_sources(given), *(p for scan in scans for p in scan.problems)]
    if not problems and len(counts) == len(scans):
        problems += check_shares(given, counts)
    return Scan(
        problems,
        count=sum(counts) if len(counts) == len(scans) else None,
        names_grader=all(scan.names_grader for scan in scans),
    )


def _scan_source(source: PromptSource, raw: RawArguments, facts: Facts, deadline: float) -> Scan:
    values, path = raw.values, facts.paths.get(source.path, "")
    if not path or is_label(path.partition("@[")[0]):
        return Scan()  # no path, or not built: a problem already
    keys = {values["input_key"]: Key("--input-key", is_prompt=True)}
    if values["label_key"] is not None:
        by_rule = values["custom_rm_path"] is None and grades_by_label(values["rm_type"])
        keys[values["label_key"]] = Key("--label-key", is_needed=by_rule)
    return scan_prompts(source.option, source.path, path, keys, deadline, values["metadata_key"])


def check_eval_data(args: Namespace, raw: RawArguments, facts: Facts) -> Iterator[Problem]:
    """Entries of the evaluation config, and every file they name."""
    words = raw.values["eval_prompt_data"]
    if words is not None and len(words) > 1 and len(words) % 2:
        message = "an odd number of words"
        yield Problem(
            "--eval-prompt-data", " ".join(words), message, "give pairs: NAME PATH NAME PATH ..."
        )
    if words is not None and raw.values["eval_config"] is not None:
        yield Problem(
            "--eval-config",
            raw.values["eval_config"],
            "contradicts --eval-prompt-data",
            "keep one of the two",
        )
    yield from check_eval_entries(list(facts.eval_entries), facts.eval_defaults)
    deadline = time.monotonic() + _SECONDS_FOR_READING
    for dataset in args.eval_datasets:
        if is_label(dataset.path.partition("@[")[0]):
            continue
        keys = {dataset.input_key or "input": Key("--eval-input-key", is_prompt=True)}
        if dataset.label_key is not None:
            custom = dataset.custom_rm_path or args.custom_rm_path
            by_rule = custom is None and grades_by_label(dataset.rm_type or args.rm_type)
            keys[dataset.label_key] = Key("--eval-label-key", is_needed=by_rule)
        name = "--eval-config" if raw.values["eval_config"] else "--eval-prompt-data"
        yield from scan_prompts(
            f"{name} {dataset.name}", dataset.path, dataset.path, keys, deadline
        ).problems


def check_mappings(args: Namespace) -> Iterator[Problem]:
    """Options that hold JSON objects hold the right ones."""
    for dest in ("multimodal_keys", "apply_chat_template_kwargs", "train_env_vars"):
        value = getattr(args, dest)
        name = option(dest)
        if value is None:
            continue
        if not isinstance(value, dict):
            yield Problem(name, value, "must be a JSON object", 'write {"key": ...}')
        elif dest != "apply_chat_template_kwargs":
            for key, item in value.items():
                if not isinstance(item, str):
                    yield Problem(f"{name} {key}", item, "must be a text", "put it in quotes")
        if dest == "multimodal_keys" and isinstance(value, dict):
            for kind in sorted(value.keys() - MEDIA):
                remedy = did_you_mean(kind, MEDIA) or "known: " + ", ".join(MEDIA)
                yield Problem(f"{name} {kind}", value[kind], "no such kind of medium", remedy)


def check_directories(args: Namespace, raw: RawArguments) -> Iterator[Problem]:
    """What the run writes can be written, what it replays is there."""
    written = ("run_dir", "save", "dump_details", "update_weight_disk_dir")
    for dest in (*written, "update_weight_local_checkpoint_dir"):
        path = getattr(args, dest)
        if path is not None and (dest == "run_dir" or raw.given(dest)):
            message = _why_not_writable(Path(path))
            if message:
                yield Problem(
                    option(dest),
                    path,
                    message,
                    "give a directory you may write to",
                )
    for dest in ("save_hf", "save_debug_rollout_data", "save_debug_train_data"):
        template = getattr(args, dest)
        if template is None:
            continue
        if dest != "save_hf" and not _names_rollouts(template):
            yield Problem(
                option(dest),
                template,
                "gives every rollout the same file",
                "put {rollout_id} in its name; other braces are doubled",
            )
        elif raw.given(dest) and (message := _why_not_to_fill(template)):
            yield Problem(option(dest), template, message, "name a folder you may write to")
    template = args.load_debug_rollout_data
    if template is not None:
        parts = re.split(r"\{rollout_id[^}]*\}", template)
        pattern = "*".join(map(glob.escape, parts))
        if len(parts) == 1:
            message = "does not contain {rollout_id}"
            yield Problem(
                "--load-debug-rollout-data",
                template,
                message,
                "give the path that --save-debug-rollout-data had",
            )
        elif not (glob.glob(pattern) or glob.glob(pattern + ".*")):
            yield Problem(
                "--load-debug-rollout-data",
                template,
                "no such file for any rollout",
                "give the path that was saved to",
            )


def _names_rollouts(template: str) -> bool:
    try:
        first, second = (template.format(rollout_id=number, rank=0) for number in (0, 1))
    except (LookupError, ValueError):  # other names in braces, or a lonely brace
        return False
    return first != second


def _why_not_to_fill(template: str) -> str:
    """What is wrong with the places that it names, one for each rollout."""
    try:
        path = Path(template.format(rollout_id=0, rank=0))
    except (LookupError, ValueError):
        return "has braces with another name than {rollout_id}, or a lonely one"
    return _why_not_writable(path.parent)


def _why_not_writable(path: Path) -> str:
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is not a directory"
    return "" if os.access(existing, os.W_OK) else f"{existing} is not writable"
