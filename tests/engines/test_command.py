"""Command lines and environment of engines and router."""

import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from urllib.request import proxy_bypass_environment

import pytest

import slime
from slime.arguments.topology import EnginePlan
from slime.engines import command, pull_weights_plugin, routed_experts_plugin


def make_args(**changes):
    values = {
        "hf_checkpoint": "/models/m",
        "device": "cpu",
        "dtype": "float32",
        "rollout_num_engines": 2,
        "rollout_num_gpus_per_engine": 1,
        "engine_threads": 3,
        "offload_rollout": False,
        "use_rollout_routing_replay": False,
        "update_weight_mode": "full",
        "sglang_server_args": {},
        "router_args": {},
        "n_samples_per_prompt": 8,
        "rollout_batch_size": 16,
        "over_sampling_batch_size": 16,
        "rollout_max_response_len": 12,
        "rollout_max_prompt_len": None,
        "rollout_max_context_len": 40,
        "rollout_seed": 7,
        "hf_architecture": {
            "max_position_embeddings": 256,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "hidden_size": 128,
        },
    }
    return Namespace(**(values | changes))


def plan(**changes):
    values = {"index": 0, "model": "default", "model_path": "/models/m", "peers": 2}
    return EnginePlan(**(values | changes))


def options(words):
    """`--a 1 --b` as {"--a": "1", "--b": None}."""
    pairs = {}
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            pairs[word] = None if following.startswith("--") else following
    return pairs


def test_flags():
    given = {"a_b": 1, "c": True, "d": False, "e": [1, "x"], "f": {"g": 1.5}, "h": 0.25}
    expected = ["--a-b", "1", "--c", "--e", "1", "x", "--f", '{"g": 1.5}', "--h", "0.25"]
    assert command.to_flags(given) == expected


def test_cpu_engine_runs_the_cpu_launcher_on_loopback_and_sleeps_when_idle():
    words = command.engine_command(make_args(), plan(index=1), port=4321)
    assert words[:3] == [sys.executable, "-m", "slime.engines.cpu_launch"]
    found = options(words)
    assert found["--host"] == "127.0.0.1"
    assert found["--port"] == "4321"
    assert found["--model-path"] == "/models/m"
    assert found["--random-seed"] == "8"  # engines must not sample the same numbers
    assert "--sleep-on-idle" in found


def test_sizes_follow_the_run():
    found = options(command.engine_command(make_args(), plan(), 1))
    assert found["--max-running-requests"] == "64"  # 16 x 8 over two engines
    assert found["--max-total-tokens"] == str(64 * 40)
    lone = make_args(rollout_batch_size=1, n_samples_per_prompt=1)
    lone.over_sampling_batch_size = 1
    assert options(command.engine_command(lone, plan(peers=1), 1))["--max-total-tokens"] == str(
        8 * 40
    )


def test_an_engine_keeps_a_copy_of_weights_that_come_as_deltas():
    variable = pull_weights_plugin.VARIABLE
    assert variable not in command.engine_environment(make_args(), plan(), {}, Path("/tmp"))
    args = make_args(update_weight_mode="delta", update_weight_local_checkpoint_dir="/copy")
    assert command.engine_environment(args, plan(), {}, Path("/tmp"))[variable] == "/copy"


def test_a_deterministic_engine_computes_one_request_at_a_time():
    args = make_args(sglang_server_args={"enable_deterministic_inference": True})
    found = options(command.engine_command(args, plan(), 1))
    assert "--enable-deterministic-inference" in found and "--disable-radix-cache" in found
    assert found["--max-running-requests"] == "1"
    variable = "SGLANG_ENABLE_DETERMINISTIC_INFERENCE"
    assert command.engine_environment(args, plan(), {}, Path("/tmp"))[variable] == "1"
    assert variable not in command.engine_environment(make_args(), plan(), {}, Path("/tmp"))
    on_gpus = make_args(device="cuda", sglang_server_args=args.sglang_server_args)
    assert "--disable-radix-cache" not in options(command.engine_command(on_gpus, plan(), 1))


def test_the_cache_holds_one_full_context_and_stays_within_its_memory():
    args = make_args(rollout_max_context_len=None)
    args.hf_architecture |= {"max_position_embeddings": 2**20}
    # 2 (keys, values) x 2 layers x 2 heads x 32 x 4 bytes = 1 KiB a token; 64 full contexts would
    # be 64 GiB.
    assert command.max_total_tokens(args, args.hf_architecture, 64) == 2 * 1024**2
    args.hf_architecture |= {"num_hidden_layers": 2000}
    assert command.max_total_tokens(args, args.hf_architecture, 64) == 2**20 + 1


def test_cuda_engine_is_the_stock_server_on_its_own_gpus():
    args = make_args(device="cuda", dtype="bfloat16")
    four = plan(index=1, num_gpus=4)
    words = command.engine_command(args, four, port=1)
    assert words[2] == "sglang.launch_server"
    found = options(words)
    assert found["--base-gpu-id"] == "0"
    environment = command.engine_environment(args, four, {}, Path("/scratch/e1"), [4, 5, 6, 7])
    assert environment["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    assert found["--tp-size"] == "4"
    assert "--attention-backend" not in found


def test_what_the_user_passes_through_wins():
    passed = {
        "max_total_tokens": 99,
        "sleep_on_idle": False,
        "log_level": "debug",
        "context_length": None,
    }
    args = make_args(sglang_server_args=passed, router_args={"policy": "cache_aware"})
    found = options(command.engine_command(args, plan(), 1))
    assert found["--max-total-tokens"] == "99"
    assert "--sleep-on-idle" not in found
    assert found["--log-level"] == "debug"
    assert "--context-length" not in found
    assert options(command.router_command(args, 1, 2))["--policy"] == "cache_aware"


def test_router_notices_a_dead_engine_within_a_second():
    found = options(command.router_command(make_args(), 8000, 8001))
    assert found["--health-check-interval-secs"] == "1"
    assert found["--health-failure-threshold"] == "1"
    assert found["--prometheus-host"] == "127.0.0.1"
    assert found["--prometheus-port"] == "8001"


def test_ten_broken_connections_do_not_close_an_engine_for_a_minute():
    assert "--disable-circuit-breaker" in command.router_command(make_args(), 1, 2)
    args = make_args(router_args={"cb_failure_threshold": 3})
    found = command.router_command(args, 1, 2)
    assert options(found)["--cb-failure-threshold"] == "3"
    assert "--disable-circuit-breaker" not in found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_environment_keeps_what_is_inherited(device):
    inherited = {"SLIME_RUN_ID": "r1", "OMP_NUM_THREADS": "9", "PYTHONPATH": "/mine"}
    args, scratch = make_args(device=device), Path("/scratch/e0")
    found = command.engine_environment(args, plan(), inherited, scratch)
    assert found["TMPDIR"] == "/scratch/e0"
    assert found["SLIME_RUN_ID"] == "r1"
    assert found["OMP_NUM_THREADS"] == {"cpu": "3", "cuda": "9"}[device]
    assert found["PYTHONPATH"].split(":")[-1] == "/mine"
    assert str(Path(slime.__file__).parents[1]) in found["PYTHONPATH"].split(":")
    assert inherited["OMP_NUM_THREADS"] == "9"


@pytest.mark.parametrize(
    ("inherited", "expected"),
    [
        ({}, "127.0.0.1,localhost"),
        ({"NO_PROXY": ".corp, 10.0.0.1"}, "127.0.0.1,localhost,.corp,10.0.0.1"),
        ({"no_proxy": "a", "NO_PROXY": "b"}, "a,127.0.0.1,localhost,b"),
        ({"no_proxy": "*"}, "*"),
    ],
)
def test_no_proxy_stands_between_the_servers(inherited, expected, monkeypatch):
    environment = command.server_environment({**inherited, "http_proxy": "http://proxy:1"})
    assert environment["no_proxy"] == environment["NO_PROXY"] == expected
    assert environment["http_proxy"] == "http://proxy:1"
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, environment[name])
    assert proxy_bypass_environment("127.0.0.1:30000")


def test_a_groups_own_options_win_over_those_of_all_engines():
    args = make_args(sglang_server_args={"log_level": "debug", "chunked_prefill_size": 1})
    found = options(command.engine_command(args, plan(overrides={"log_level": "error"}), 1))
    assert found["--log-level"] == "error"
    assert found["--chunked-prefill-size"] == "1"


def test_disaggregated_engines_know_their_part():
    """Running them needs GPUs and a transfer library; their command lines need neither."""
    args = make_args(device="cuda")
    prefill = options(command.engine_command(args, plan(worker_type="prefill", index=3), 1))
    assert prefill["--disaggregation-mode"] == "prefill"
    assert prefill["--disaggregation-bootstrap-port"] == "9001"
    decode = options(command.engine_command(args, plan(worker_type="decode"), 1))
    assert decode["--disaggregation-mode"] == "decode"
    encoder = options(command.engine_command(args, plan(worker_type="encoder"), 1))
    assert "--encoder-only" in encoder
    words = command.engine_command(args, plan(), 1, encoder_urls=["http://a:1", "http://b:2"])
    assert "--language-only" in words
    assert " ".join(words).count("--encoder-urls http://a:1 http://b:2") == 1
    assert "--pd-disaggregation" in command.router_command(args, 1, 2, disaggregated=True)
    assert "--pd-disaggregation" not in command.router_command(args, 1, 2)


def test_engines_of_a_routing_replay_report_experts_without_being_asked(tmp_path):
    """The router drops the field of a request that asks for them."""
    replay = make_args(use_rollout_routing_replay=True)
    for args, wanted in ((make_args(), None), (replay, "1")):
        environment = command.engine_environment(args, plan(), {}, tmp_path)
        assert environment.get(routed_experts_plugin.VARIABLE) == wanted
    request = SimpleNamespace(return_routed_experts=False)
    routed_experts_plugin.ask(None, request)
    assert request.return_routed_experts
    embedding = SimpleNamespace()
    routed_experts_plugin.ask(None, embedding)
    assert not vars(embedding)


def test_an_engine_over_two_machines_of_eight_gpus():
    args, both = make_args(device="cuda", dtype="bfloat16"), plan(num_gpus=16, num_nodes=2)
    place = {"encoder_urls": (), "meet_at": "10.0.0.1:777"}
    lines = [
        options(command.engine_command(args, both, 5, address=address, node_rank=rank, **place))
        for rank, address in enumerate(("10.0.0.1", "10.0.0.2"))
    ]
    for rank, line in enumerate(lines):
        assert line["--tp-size"] == "16" and line["--nnodes"] == "2"
        assert line["--node-rank"] == str(rank)
        assert line["--dist-init-addr"] == "10.0.0.1:777"
        assert line["--host"] == f"10.0.0.{rank + 1}"
    # All else must be the same, or the ranks would not do the same.
    own = {"--node-rank", "--host"}
    assert {k: v for k, v in lines[0].items() if k not in own} == {
        k: v for k, v in lines[1].items() if k not in own
    }
    gpus = list(range(8))
    found = command.engine_environment(args, both, {}, Path("/s"), gpus, "10.0.0.2", "eth1")
    assert found["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert found["GLOO_SOCKET_IFNAME"] == "eth1"
    chosen = {"GLOO_SOCKET_IFNAME": "ib0"}  # what the user chose for this machine stays
    found = command.engine_environment(args, both, chosen, Path("/s"), gpus, "10.0.0.2", "eth1")
    assert found["GLOO_SOCKET_IFNAME"] == "ib0"
    lone = command.engine_environment(args, plan(num_gpus=8), {}, Path("/s"), gpus, "10.0.0.2")
    assert "GLOO_SOCKET_IFNAME" not in lone
    assert "--nnodes" not in command.engine_command(args, plan(num_gpus=8), 5)


def test_ranks_on_one_cpu_machine_meet_in_a_file_and_those_of_several_at_a_port():
    args, variable = make_args(), "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"
    one = command.engine_environment(args, plan(num_gpus=2), {}, Path("/s"))
    assert one[variable] == "file:///s/ranks" and one["GLOO_SOCKET_IFNAME"] == "lo"
    two = plan(num_gpus=2, num_nodes=2)
    environment = command.engine_environment(args, two, {}, Path("/s"), (), "10.0.0.2", "eth1")
    assert variable not in environment and environment["GLOO_SOCKET_IFNAME"] == "eth1"
    # SGLang takes the entry of a rank's number on its machine, so there are enough of them.
    assert len(environment["SGLANG_CPU_OMP_THREADS_BIND"].split("|")) >= two.gpus_per_node
