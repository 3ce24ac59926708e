"""`--deterministic-mode` is refused together with what is not deterministic."""

from collections.abc import Callable

import pytest

from slime.arguments.errors import Problem
from slime.arguments.parse import parse_args

ON = "--deterministic-mode"


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ([ON], {}),
        ([ON, "--train-env-vars", '{"NCCL_ALGO": "^NVLS", "PATH": "/bin"}'], {}),
        (["--train-env-vars", '{"NCCL_ALGO": "NVLS"}', "--cross-entropy-loss-fusion"], {}),
        ([ON, "--cross-entropy-loss-fusion"], {"--cross-entropy-loss-fusion": "leave one"}),
        (
            [ON, "--train-env-vars", '{"NCCL_ALGO": "NVLS", "CUBLAS_WORKSPACE_CONFIG": ":0:0"}'],
            {
                "--train-env-vars NCCL_ALGO": "set it to Ring or Tree",
                "--train-env-vars CUBLAS_WORKSPACE_CONFIG": "set it to :4096:8 or :16:8",
            },
        ),
        (
            [ON, "--train-env-vars", '{"NVTE_ALLOW_NONDETERMINISTIC_ALGO": "1"}'],
            {"--train-env-vars NVTE_ALLOW_NONDETERMINISTIC_ALGO": "set it to 0"},
        ),
    ],
)
def test_refused_with_a_remedy(
    words: list[str],
    refused: dict[str, str],
    argv: list[str],
    problems_of: Callable[..., list[Problem]],
) -> None:
    found = {problem.option: problem.remedy for problem in problems_of(*words)}
    assert found.keys() == refused.keys()
    assert all(text in found[name] for name, text in refused.items())
    if not refused:
        assert parse_args(argv=[*argv, *words]).deterministic_mode == (ON in words)
