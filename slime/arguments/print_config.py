"""YAML of a configuration: what was given (it reproduces the run) and what it resolved to (it
documents the run).
"""

from argparse import Namespace
from dataclasses import asdict, replace
from typing import Any

import yaml

from slime.arguments.eval_config import entries_of_prompt_data
from slime.arguments.flag import Flag
from slime.arguments.labels import is_label
from slime.arguments.megatron_passthrough import megatron_flags
from slime.arguments.passthrough import TARGETS
from slime.arguments.prompt_sources import parse_prompt_sources, render_prompt_sources
from slime.arguments.registry import GROUPS, all_flags

_NOT_PRINTED = ("config", "print_config", "dry_run")
# Never written to a file; the environment variable WANDB_API_KEY does the same.
_SECRET = ("wandb_key",)


def render_config(args: Namespace) -> str:
    """A `--config` file that reproduces this run: every given option, nested by group, and the
    device found.

    Relative paths are printed absolute, variables of the environment with their values; secrets are
    left out.
    """
    given: dict[str, Any] = args.raw_options
    nested: dict[str, dict[str, Any]] = {}
    for group in GROUPS:
        options = {
            flag.dest: _printed(args, flag, given[flag.dest])
            for flag in group.flags
            if flag.dest in given and flag.dest not in _NOT_PRINTED + _SECRET
        }
        if group.name == "run":
            options["device"] = args.device
        if options:
            nested[group.name] = options
    for target in TARGETS:
        start = target.dest + "."
        passed = {
            name.removeprefix(start): value
            for name, value in given.items()
            if name.startswith(start)
        }
        if passed:
            nested[target.prefix] = passed
    others = _others(args)
    for_megatron = {k: v for k, v in others.items() if k in megatron_flags()}
    if for_megatron:
        nested["megatron"] = for_megatron
    custom = {k: v for k, v in others.items() if k not in for_megatron}
    text: str = yaml.safe_dump({**nested, **custom}, sort_keys=False, allow_unicode=True)
    return text


def render_resolved(args: Namespace) -> str:
    """Every resolved argument as YAML, sorted by name: the record in the run directory."""
    values = {
        name: value for name, value in vars(args).items() if name not in ("raw_options", *_SECRET)
    }
    values["eval_datasets"] = [
        {name: value for name, value in asdict(dataset).items() if value is not None}
        for dataset in args.eval_datasets
    ]
    values["sglang_models"] = [asdict(model) for model in args.sglang_models]
    text: str = yaml.safe_dump(values, sort_keys=True, allow_unicode=True)
    return text


def changed_options(args: Namespace) -> dict[str, dict[str, object]]:
    """Group -> resolved options that are not the default."""
    changed: dict[str, dict[str, object]] = {}
    for group in GROUPS:
        for flag in group.flags:
            value = getattr(args, flag.dest)
            if value != flag.default and flag.dest not in _NOT_PRINTED + _SECRET:
                changed.setdefault(group.name, {})[flag.dest] = value
    if other := _others(args):
        changed["other"] = other
    for target in TARGETS:
        if getattr(args, target.dest):
            changed[target.prefix] = dict(getattr(args, target.dest))
    return changed


def _others(args: Namespace) -> dict[str, Any]:
    """Given options that are none of slime's own: of Megatron, of the caller."""
    known = {flag.dest for flag in all_flags()}
    return {k: v for k, v in args.raw_options.items() if k not in known and "." not in k}


def _printed(args: Namespace, flag: Flag, value: Any) -> Any:
    if flag.dest == "eval_prompt_data" and value is not None:
        given = [word for entry in entries_of_prompt_data(value) for word in entry.values()]
        resolved = args.eval_prompt_data
        return [_portable(a, b) for a, b in zip(given, resolved, strict=True)]
    if flag.dest == "prompt_data" and value is not None:
        sources = zip(
            parse_prompt_sources(value), parse_prompt_sources(args.prompt_data), strict=True
        )
        return render_prompt_sources(
            [replace(given, path=_portable(given.path, found.path)) for given, found in sources]
        )
    if not flag.path or not isinstance(value, str):
        return value
    return _portable(value, getattr(args, flag.dest))


def _portable(given: str, resolved: str) -> str:
    """Labels and `{run_dir}` mean the same anywhere; a relative path does not."""
    return given if is_label(given.partition("@[")[0]) or "{run_dir}" in given else resolved
