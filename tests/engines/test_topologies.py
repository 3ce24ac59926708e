"""Several models behind routers of their own, and the same engines as somebody else's."""

import asyncio

import pytest
import requests

from slime.arguments.errors import ConfigError
from slime.engines.external import (
    apply_external_engine_info_to_args,
    discover_external_engines,
    start_external_rollout_servers,
)
from slime.engines.ports import free_ports
from slime.rollout.engine_requests import get_model_url, headers
from slime.rollout.http_client import post
from slime.samples.sample import Sample
from tests.engines.real_servers import (
    generate,
    largest_difference,
    make_args,
    make_model,
    running,
    save_model,
)

PROMPT = [5, 9, 3]
TWO_MODELS = """
sglang:
  - name: judge
    model_path: {judge}
    server_groups: [{{worker_type: regular, num_gpus: 1, overrides: {{max_total_tokens: 512}}}}]
  - name: actor
    server_groups: [{{worker_type: regular, num_gpus: 1}}]
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return [save_model(tmp_path_factory.mktemp(f"model{seed}"), seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def servers(folders, tmp_path_factory):
    """The actor (seed 0, trained) and a judge (seed 1, frozen)."""
    work = tmp_path_factory.mktemp("two")
    config = work / "models.yaml"
    config.write_text(TWO_MODELS.format(judge=folders[1]))
    flags = ("--sglang-config", str(config), "--rollout-num-gpus", "2")
    with running(make_args(folders[0], work, *flags)) as started:
        yield started


def difference(url, seed):
    (answer,) = generate(url, [PROMPT])
    return largest_difference(make_model(seed), PROMPT, answer)


def test_each_model_has_its_router_and_its_weights(servers):
    def url(name):
        return get_model_url(servers.args, name, "")

    assert difference(url("actor"), 0) < 1e-5 < difference(url("judge"), 0)
    assert difference(url("judge"), 1) < 1e-5
    assert url("default") == url("actor") == servers.router_url
    with pytest.raises(ValueError, match="no model named 'critic'"):
        url("critic")
    judge, actor = servers.engines
    info = requests.get(judge.url + "/server_info", timeout=10).json()
    assert info["max_total_tokens"] == 512  # the override of its group
    assert [engine.plan.gpu_offset for engine in (judge, actor)] == [0, 1]


def external_args(folder, work, *addresses):
    return make_args(folder, work, "--rollout-external-engine-addrs", *addresses)


def test_engines_of_somebody_else_are_discovered_and_used(servers, folders, tmp_path):
    address = servers.engines[1].url.removeprefix("http://")
    (info,) = discover_external_engines([address])
    assert (info.url, info.worker_type, info.num_gpus) == (servers.engines[1].url, "regular", 1)
    assert info.parallel_config() == {"tp_size": 1, "pp_size": 1, "dp_size": 1, "ep_size": 1}
    assert not info.is_pd_worker() and info.to_dict()["port"] == int(address.split(":")[1])
    args = external_args(folders[0], tmp_path, address)
    apply_external_engine_info_to_args(args)
    assert (args.rollout_num_engines, args.rollout_num_gpus_per_engine) == (1, 1)
    with running(args) as ours:
        assert ours.engine_urls == [servers.engines[1].url]
        assert difference(ours.router_url, 0) < 1e-5
        place = (args.sglang_router_ip, args.sglang_router_port)
        found, started = start_external_rollout_servers(args, start_router=lambda _: place)
        assert found["default"].engines[0].url == ours.engine_urls[0] and started == []
    assert servers.engines[1].answers()  # it outlives the run that borrowed it


def test_a_router_of_somebody_else_gets_our_engines_and_loses_them_again(
    servers, folders, tmp_path
):
    router = servers.routers[1]
    args = external_args(folders[0], tmp_path, servers.engines[0].url)
    args.sglang_router_ip, args.sglang_router_port = "127.0.0.1", int(router.url.split(":")[2])
    with running(args):
        assert router.healthy() == {engine.url for engine in servers.engines}
    assert router.healthy() == {servers.engines[1].url}


def test_what_is_no_engine_is_refused_with_everything_at_once(servers, folders, tmp_path):
    (port,) = free_ports(1)
    router = servers.router_url.removeprefix("http://")
    args = external_args(folders[0], tmp_path, f"127.0.0.1:{port}", router)
    args.rollout_external_engine_addrs.append("nonsense")  # a caller of ours that skips the checks
    with pytest.raises(ConfigError) as error:
        apply_external_engine_info_to_args(args)
    assert len(error.value.problems) == 3
    assert "is no host:port" in str(error.value)


def test_an_engine_of_another_kind_of_model_is_refused(servers, folders, tmp_path):
    args = external_args(folders[0], tmp_path, servers.engines[1].url)
    args.hf_architecture = {"model_type": "llama"}
    with pytest.raises(ConfigError, match="serves a qwen3 model, --hf-checkpoint is llama"):
        apply_external_engine_info_to_args(args)


def test_a_request_to_a_named_model_goes_through_the_rollouts_client(servers):
    url = get_model_url(servers.args, "judge")
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 3}}
    answer = asyncio.run(post(url, body))
    assert answer["meta_info"]["completion_tokens"] <= 3


@pytest.mark.parametrize("policy", ["manual", "consistent_hashing"])
def test_all_turns_of_a_session_go_to_one_engine(servers, folders, tmp_path, policy):
    addresses = [engine.url.removeprefix("http://") for engine in servers.engines]
    args = external_args(folders[0], tmp_path, *addresses, "--router-policy", policy)
    body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
    body["return_logprob"] = True

    async def turns(session):
        to = headers(Sample(session_id=session))
        answers = [await post(running_url, body, headers=to) for _ in range(3)]
        entries = [answer["meta_info"]["output_token_logprobs"][0] for answer in answers]
        return {round(log_prob, 3) for log_prob, _, _ in entries}

    async def all_turns():
        return await asyncio.gather(*(turns(f"session {number}") for number in range(16)))

    with running(args) as ours:
        running_url = ours.router_url + "/generate"
        found = asyncio.run(all_turns())
    assert all(len(session) == 1 for session in found)  # the engines' weights tell them apart
    assert len(set.union(*found)) == 2
