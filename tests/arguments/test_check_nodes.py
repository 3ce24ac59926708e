"""Engines larger than a machine: their plan, its lines, and what is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.errors import Problem
from slime.arguments.parse import parse_args
from slime.arguments.plan import build_plan
from slime.arguments.topology import has_engine_over_nodes, plan_models

Collect = Callable[..., list[Problem]]
# Two engines of 16 GPUs, each over two machines of 8.
TWO_OF_SIXTEEN = (
    "--device cuda --actor-num-gpus-per-node 8 --rollout-num-gpus 32 "
    "--rollout-num-gpus-per-engine 16"
)
GROUPS = """
sglang:
  - name: actor
    server_groups: [{groups}]
"""


def test_two_machines_of_eight_gpus_for_each_engine(argv: list[str]) -> None:
    args = parse_args(argv=[*argv, *TWO_OF_SIXTEEN.split()])
    (model,) = plan_models(args)
    assert [(e.num_gpus, e.num_nodes, e.gpus_per_node) for e in model.engines] == [(16, 2, 8)] * 2
    gpus = [list(range(32))[e.gpus_of_node(rank)] for e in model.engines for rank in range(2)]
    assert gpus == [list(range(start, start + 8)) for start in (0, 8, 16, 24)]
    assert has_engine_over_nodes(args)
    lines = {p.name: p for p in build_plan(args).processes if p.name.startswith("engine")}
    assert list(lines) == ["engine 0", "engine 0 node 1", "engine 1", "engine 1 node 1"]
    assert lines["engine 0"].role == "SGLang tp16 over 2 nodes, bfloat16"
    assert lines["engine 0 node 1"].role == "tp ranks 8 to 15"
    memory = [line.memory_gib for line in lines.values()]
    assert memory[0] > 0 and len(set(memory)) == 1  # each has its half
    (alone,) = [
        p.memory_gib
        for p in build_plan(parse_args(argv=[*argv, "--device=cuda", "--rollout-num-gpus=1"]))
        .processes if p.name == "engine 0"
    ]  # fmt: skip
    assert memory[0] == alone / 2


@pytest.mark.parametrize(
    ("words", "nodes"),
    [
        ("--rollout-num-gpus 8 --rollout-num-gpus-per-engine 8", [1]),
        ("--rollout-num-gpus 8 --rollout-num-gpus-per-engine 4", [1, 1]),
        ("--rollout-num-gpus 8 --rollout-num-gpus-per-engine 4 --num-gpus-per-node 4", [1, 1]),
        ("--rollout-num-gpus 8 --rollout-num-gpus-per-engine 8 --num-gpus-per-node 4", [2]),
        ("--rollout-num-gpus 2 --rollout-num-gpus-per-engine 2 --num-gpus-per-node 1", [2]),
    ],
)
def test_as_few_machines_as_can_be(words: str, nodes: list[int], argv: list[str]) -> None:
    args = parse_args(argv=[*argv, *words.split()])
    (model,) = plan_models(args)
    assert [engine.num_nodes for engine in model.engines] == nodes
    assert has_engine_over_nodes(args) == (max(nodes) > 1)


def test_a_frozen_model_over_machines_gets_no_weights(argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "judge").mkdir()
    text = GROUPS.format(groups="{worker_type: regular, num_gpus: 1}")
    text += "  - {name: judge, model_path: judge, num_gpus_per_engine: 2, server_groups: "
    text += "[{worker_type: regular, num_gpus: 2}]}\n"
    (tmp_path / "groups.yaml").write_text(text)
    words = "--sglang-config groups.yaml --num-gpus-per-node 1"
    args = parse_args(argv=[*argv, *words.split()])
    assert [e.num_nodes for model in plan_models(args) for e in model.engines] == [1, 2]
    assert not has_engine_over_nodes(args)


@pytest.mark.parametrize(
    ("words", "option", "message"),
    [
        (
            "--device cuda --rollout-num-gpus 12 --rollout-num-gpus-per-engine 12",
            "--rollout-num-gpus-per-engine",
            "takes whole ones (--num-gpus-per-node 8)",
        ),
        (
            f"{TWO_OF_SIXTEEN} --update-weight-mode delta --update-weight-transport disk",
            "--update-weight-mode",
            "lies on several machines",
        ),
        (
            "--rollout-num-gpus 4 --rollout-num-gpus-per-engine 2 --num-gpus-per-node 1 "
            "--prefill-num-servers 1",
            "--rollout-num-gpus-per-engine",
            "on a CPU the cache goes from engine to engine within a machine",
        ),
    ],
)
def test_refused(words: str, option: str, message: str, problems_of: Collect) -> None:
    problems = problems_of(*words.split())
    assert {problem.option for problem in problems} == {option}
    assert all(message in problem.message and problem.remedy for problem in problems)


@pytest.mark.parametrize(
    ("groups", "words", "message"),
    [
        ("{worker_type: regular, num_gpus: 12, num_gpus_per_engine: 12}", "", "whole ones"),
        ("{worker_type: regular, num_gpus: 16, num_gpus_per_engine: 16}", "", ""),
        (
            "{worker_type: regular, num_gpus: 4}, "
            "{worker_type: regular, num_gpus: 16, num_gpus_per_engine: 16}",
            "",
            "begins with GPU 4 of the engines, in mid-node",
        ),
        # The trainer's four GPUs and those of the small engines fill a machine.
        (
            "{worker_type: regular, num_gpus: 4}, "
            "{worker_type: regular, num_gpus: 16, num_gpus_per_engine: 16}",
            "--actor-num-gpus-per-node 4",
            "",
        ),
        (
            "{worker_type: regular, num_gpus: 1}, {worker_type: placeholder, num_gpus: 7},"
            "{worker_type: encoder, num_gpus: 16, num_gpus_per_engine: 16}",
            "",
            "on one machine",
        ),
    ],
)
def test_groups(
    groups: str, words: str, message: str, problems_of: Collect, tmp_path: Path
) -> None:
    (tmp_path / "groups.yaml").write_text(GROUPS.format(groups=groups))
    base = "--device cuda --actor-num-gpus-per-node 8 --sglang-config groups.yaml"
    problems = problems_of(*base.split(), *words.split())
    assert len(problems) == bool(message)
    assert all(message in problem.message and problem.remedy for problem in problems)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--rollout-num-gpus 80000", "--rollout-num-gpus"),
        ("--rollout-num-gpus 4 --prefill-num-servers 1000000000000", "--prefill-num-servers"),
    ],
)
def test_more_engines_than_ports_are_refused_before_they_are_planned(
    words: str, option: str, problems_of: Collect
) -> None:
    problems = problems_of("--device=cuda", *words.split())
    found = [problem for problem in problems if "at most" in problem.message]
    assert option in {problem.option for problem in found}
