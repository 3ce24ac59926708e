"""Parquet prompts: counted and checked from the footer alone."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.errors import ConfigError, Problem
from slime.arguments.parse import parse_args

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
Collect = Callable[..., list[Problem]]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.parquet"
    table = pyarrow.Table.from_pylist(
        [{"input": f"{n}+1=", "label": f"{n + 1}"} for n in range(40)]
    )
    parquet.write_table(table, file, row_group_size=16)
    return file


@pytest.mark.parametrize(("part", "count"), [("", 40), ("@[:20]", 20), ("@[-8:]", 8)])
def test_epochs_are_counted(argv: list[str], rows: Path, part: str, count: int) -> None:
    words = [*argv, "--prompt-data", f"{rows}{part}", "--rollout-batch-size", "4"]
    at = words.index("--num-rollout")
    args = parse_args(argv=[*words[:at], *words[at + 2 :], "--num-epoch", "3"])
    assert args.num_rollout_per_epoch == count // 4
    assert args.num_rollout == 3 * (count // 4)


def test_a_batch_larger_than_the_epoch_is_refused(argv: list[str], rows: Path) -> None:
    at = argv.index("--num-rollout")
    words = [*argv[:at], *argv[at + 2 :], "--num-epoch", "3", "--prompt-data", f"{rows}@[:9]"]
    with pytest.raises(ConfigError, match="an epoch has fewer prompts"):
        parse_args(argv=words)


def test_a_missing_column_is_named(problems_of: Collect, rows: Path) -> None:
    (problem,) = problems_of("--prompt-data", str(rows), "--label-key", "lable")
    assert problem.option == f"--prompt-data {rows}"
    assert problem.message == "has no column 'lable' (--label-key); it has: input, label"
    assert problem.remedy == "did you mean label?"


def test_an_empty_slice_and_a_file_that_is_none(problems_of: Collect, rows: Path) -> None:
    (problem,) = problems_of("--prompt-data", f"{rows}@[40:]")
    assert problem.message == "holds no prompts"
    rows.write_bytes(b"PAR1 but no more")
    (problem,) = problems_of("--prompt-data", str(rows))
    assert problem.option == "--prompt-data" and "is no parquet file" in problem.message


def test_the_metadata_may_name_the_grader(argv: list[str], rows: Path) -> None:
    row = {"input": "x", "label": "y", "metadata": {"rm_type": "math"}}
    parquet.write_table(pyarrow.Table.from_pylist([row] * 16), rows)
    at = argv.index("--rm-type")
    words = [*argv[:at], *argv[at + 2 :], "--prompt-data", str(rows)]
    assert parse_args(argv=words).rm_type is None
