"""Functions given by path are imported and their signatures checked, all at once."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from slime.arguments import registry
from slime.hooks.checks import check_hooks
from slime.hooks.contracts import CONTRACTS


def good_filter(args: Any, samples: Any, **kwargs: Any) -> bool:
    return True


def short_filter(args: Any) -> bool:
    return True


async def good_generate(
    args: Any, sample: Any, sampling_params: dict, evaluation: bool = False
) -> Any:
    return sample


def sync_generate(args: Any, sample: Any, sampling_params: dict) -> Any:
    return sample


def rollout_without_evaluation(args: Any, rollout_id: int, data_source: Any) -> Any:
    return []


class GoodSource:
    def __init__(self, args: Any) -> None: ...


class AsyncCallable:
    async def __call__(self, args: Any, sample: Any, sampling_params: dict) -> Any: ...


async_object = AsyncCallable()
number = 3


def here(name: str) -> str:
    return f"{__name__}.{name}"


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("dynamic_sampling_filter_path", "good_filter"),
        ("custom_generate_function_path", "good_generate"),
        ("custom_generate_function_path", "async_object"),
        ("data_source_path", "GoodSource"),
    ],
)
def test_right_functions_pass(option: str, name: str) -> None:
    assert check_hooks(Namespace(**{option: here(name)})) == []


@pytest.mark.parametrize(
    ("option", "name", "messages"),
    [
        (
            "dynamic_sampling_filter_path",
            "short_filter",
            ["cannot be called as (args, samples)", "short_filter(args: Any) -> bool"],
        ),
        (
            "custom_generate_function_path",
            "sync_generate",
            ["must be a coroutine function", "sync_generate(args"],
        ),
        (
            "rollout_function_path",
            "rollout_without_evaluation",
            ["(args, rollout_id, data_source, evaluation=...)", "unexpected keyword"],
        ),
        ("custom_rm_path", "number", ["is a int, not a function"]),
        ("custom_rm_path", "no_such_name", ["cannot be imported", "no_such_name"]),
        ("custom_rm_path", "a-b", ["no import path of the form package.module.name"]),
    ],
)
def test_wrong_functions_show_expected_and_found(
    option: str, name: str, messages: list[str]
) -> None:
    (problem,) = check_hooks(Namespace(**{option: here(name)}))
    assert problem.option == "--" + option.replace("_", "-") and problem.value == here(name)
    for message in messages:
        assert message in str(problem)


def test_all_problems_come_at_once_also_of_lists_and_data_sets() -> None:
    args = Namespace(
        rollout_sample_hook_path=[here("short_filter"), here("good_filter")],
        custom_rm_path="no.such.grader",
        buffer_filter_path=here("good_filter"),
        eval_datasets=[
            Namespace(
                name="aime", custom_rm_path=here("number"), custom_generate_function_path=None
            )
        ],
    )
    assert [(p.option, p.value) for p in check_hooks(args)] == [
        ("--rollout-sample-hook-path", here("short_filter")),
        ("--buffer-filter-path", here("good_filter")),
        ("--custom-rm-path", "no.such.grader"),
        ("evaluation data aime: custom_rm_path", here("number")),
    ]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("raise RuntimeError('boom')", "RuntimeError"),
        ("import sys; sys.exit('boom')", "SystemExit"),
    ],
)
def test_a_module_that_ends_its_import_badly_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, kind: str
) -> None:
    (tmp_path / "explodes_on_import.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    (problem,) = check_hooks(Namespace(custom_rm_path="explodes_on_import.f"))
    assert f"raises {kind} while it is imported: boom" in problem.message


def test_every_path_option_has_a_contract() -> None:
    options = {
        flag.dest for flag in registry.all_flags() if flag.dest.endswith("_path") and not flag.path
    }
    assert options - {"memory_snapshot_path"} == set(CONTRACTS)  # that one names a file


@pytest.mark.parametrize(
    ("option", "path"),
    [
        ("dynamic_sampling_filter_path", "slime.filters.dynamic_sampling.check_reward_nonzero_std"),
        ("buffer_filter_path", "slime.rollout.data_source.pop_first"),
        ("data_source_path", "slime.rollout.data_source.RolloutDataSource"),
        ("data_source_path", "slime.data.source.RolloutDataSourceWithBuffer"),
    ],
)
def test_our_own_hooks_keep_their_contracts(option: str, path: str) -> None:
    assert check_hooks(Namespace(**{option: path})) == []


def test_the_defaults_are_not_imported() -> None:
    code = (
        "import sys; from argparse import Namespace; from slime.hooks.checks import check_hooks;"
        "check_hooks(Namespace(rollout_function_path='slime.rollout.sglang_rollout.generate_rollout'));"
        "assert 'slime.rollout' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
