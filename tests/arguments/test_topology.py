"""The plan of engines: which there are, where their GPUs begin, what they know of each other."""

from pathlib import Path

from slime.arguments.parse import parse_args
from slime.arguments.plan import build_plan
from slime.arguments.topology import plan_models

GROUPS = """
sglang:
  - name: actor
    server_groups:
      - {worker_type: encoder, num_gpus: 1}
      - {worker_type: placeholder, num_gpus: 2}
      - {worker_type: prefill, num_gpus: 2}
      - {worker_type: decode, num_gpus: 4, num_gpus_per_engine: 2, overrides: {log_level: error}}
  - name: judge
    model_path: judge
    server_groups: [{worker_type: regular, num_gpus: 1}]
"""


def test_one_model_by_options(argv: list[str]) -> None:
    words = ["--rollout-num-gpus", "4", "--rollout-num-gpus-per-engine", "2"]
    args = parse_args(argv=[*argv, *words])
    (model,) = plan_models(args)
    assert (model.name, model.update_weights, model.disaggregated) == ("default", True, False)
    assert [(e.index, e.gpu_offset, e.num_gpus, e.peers) for e in model.engines] == [
        (0, 0, 2, 2),
        (1, 2, 2, 2),
    ]
    assert {e.model_path for e in model.engines} == {args.hf_checkpoint}


def test_groups_follow_each_other_and_placeholders_leave_gpus_free(
    argv: list[str], tmp_path: Path
) -> None:
    (tmp_path / "groups.yaml").write_text(GROUPS)
    actor, judge = plan_models(parse_args(argv=[*argv, "--sglang-config", "groups.yaml"]))
    assert [(e.index, e.worker_type, e.gpu_offset, e.peers) for e in actor.engines] == [
        (0, "encoder", 0, 1),
        (1, "prefill", 3, 2),
        (2, "prefill", 4, 2),
        (3, "decode", 5, 2),
        (4, "decode", 7, 2),
    ]
    assert actor.disaggregated and [e.index for e in actor.encoders] == [0]
    assert actor.engines[3].overrides == {"log_level": "error"}
    (engine,) = judge.engines
    assert (engine.index, engine.gpu_offset, judge.update_weights) == (5, 9, False)
    assert engine.model_path == str(tmp_path / "judge")


def test_prefill_servers(argv: list[str]) -> None:
    words = "--rollout-num-gpus 6 --rollout-num-gpus-per-engine 2 --prefill-num-servers 1"
    args = parse_args(argv=[*argv, *words.split()])
    (model,) = plan_models(args)
    assert [e.worker_type for e in model.engines] == ["prefill", "decode", "decode"]
    names = [process.role for process in build_plan(args).processes if process.name == "router"]
    assert names == ["sglang-router, prefill and decode apart"]


def test_external_engines_have_no_gpus_here(argv: list[str]) -> None:
    words = ["--rollout-external-engine-addrs", "a:1", "http://b:2"]
    (model,) = plan_models(parse_args(argv=[*argv, *words]))
    assert [e.address for e in model.engines] == ["http://a:1", "http://b:2"]


def test_no_engines_when_only_training(argv: list[str]) -> None:
    args = parse_args(argv=argv)
    args.debug_train_only = True
    assert plan_models(args) == ()
