"""Rollouts through a real router and engine; the oracle is the Hugging Face model."""

import asyncio
import contextlib
import copy
import functools
import gc
import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from slime.data.source import RolloutDataSourceWithBuffer
from slime.filters.base_types import DynamicFilterOutput
from slime.rollout import async_loop, collecting, http_client, sglang_rollout
from slime.rollout.errors import RolloutError
from slime.samples.sample import Sample
from tests.engines.real_servers import make_args, make_model

Status = Sample.Status


def source(args):
    return RolloutDataSourceWithBuffer(args)


def params(args, **changes):
    return {**sglang_rollout.GenerateState(args).sampling_params, **changes}


def check_log_probs(sample, model=None):
    """Recorded log-probs against those of the Hugging Face model."""
    model = model or make_model(seed=0)
    with torch.no_grad():
        log_probs = model(torch.tensor([sample.tokens])).logits[0].log_softmax(-1)
    start = len(sample.tokens) - sample.response_length
    new = torch.tensor(sample.tokens[start:])
    expected = log_probs[torch.arange(start - 1, len(sample.tokens) - 1), new]
    recorded = torch.tensor(sample.rollout_log_probs)
    torch.testing.assert_close(recorded, expected, atol=1e-5, rtol=0)


def test_a_rollout_is_complete_aligned_and_graded(args):
    output = sglang_rollout.generate_rollout(args, 0, source(args))
    assert [len(group) for group in output.samples] == [4, 4, 4, 4]
    samples = [sample for group in output.samples for sample in group]
    assert [sample.index for sample in samples] == list(range(16))
    for sample in samples:
        sample.check_alignment()
        assert sample.status in (Status.COMPLETED, Status.TRUNCATED)
        assert (sample.status == Status.TRUNCATED) == (sample.tokens[-1] != 1)
        assert 1 <= sample.response_length <= 8
        assert sample.weight_versions == ["default"]
        assert sample.reward is not None
        check_log_probs(sample)
    prompts = [{tuple(s.tokens[: -s.response_length]) for s in group} for group in output.samples]
    assert all(len(prompt) == 1 for prompt in prompts)
    assert len({tuple(sample.tokens) for sample in samples}) > 8  # it samples
    assert output.metrics["rollout/failed_samples"] == 0


def test_a_group_in_one_request_equals_samples_on_their_own(args):
    together, alone = source(args).get_samples(1)[0], source(args).get_samples(1)[0]
    greedy = params(args, temperature=0.0)

    async def body():
        await sglang_rollout.generate_and_rm_group(args, together, greedy)
        for sample in alone:
            await sglang_rollout.generate(args, sample, dict(greedy))

    async_loop.run(body())
    for one, other in zip(together, alone, strict=True):
        assert one.tokens == other.tokens
        assert one.response == other.response
        assert one.status == other.status
        assert one.rollout_log_probs == pytest.approx(other.rollout_log_probs, abs=1e-5)


def test_text_prompts_and_messages_are_encoded(args):
    text = Sample(index=0, prompt="say a")
    messages = Sample(index=1, prompt=[{"role": "user", "content": "say a"}])
    for sample in (text, messages):
        async_loop.run(sglang_rollout.generate(args, sample, params(args)))
    tokenizer = sglang_rollout.GenerateState(args).tokenizer
    assert tokenizer.decode(text.tokens[: -text.response_length]) == "say a"
    # the template of the test's tokenizer adds a blank
    assert tokenizer.decode(messages.tokens[: -messages.response_length]) == "say a "


def test_a_token_outside_the_vocabulary_never_reaches_the_engine(args, servers):
    for token in (10**6, -1, 39):
        sample = Sample(index=5, tokens=[3, token, 4], prompt="x")
        async_loop.run(sglang_rollout.generate(args, sample, params(args)))
        assert sample.status == Status.FAILED
        assert f"sample 5 has token id {token} at position 1" in sample.metadata["failure"]
        assert "39 tokens" in sample.metadata["failure"]
    servers.check()


@pytest.mark.flags("--rollout-max-context-len", "20")
def test_prompt_and_response_never_exceed_the_context(args):
    for prompt_len, new in [(15, 5), (18, 2), (20, 0), (25, 0), (5, 8)]:
        sample = Sample(index=0, tokens=[5] * prompt_len, prompt="x")
        ignoring = params(args, ignore_eos=True)
        async_loop.run(sglang_rollout.generate(args, sample, ignoring))
        assert sample.response_length == new
        assert len(sample.tokens) == prompt_len + new
        assert sample.status == Status.TRUNCATED


@pytest.mark.flags("--partial-rollout", "--rollout-max-response-len", "200")
def test_abort_keeps_the_tokens_and_a_later_rollout_continues_them(args):
    prompts = source(args)
    state = sglang_rollout.GenerateState(args)
    state.sampling_params["ignore_eos"] = True

    async def start_and_abort():
        state.submit_generate_tasks(prompts.get_samples(2))
        await asyncio.sleep(0.15)
        groups = await sglang_rollout.abort(args, rollout_id=3)
        state.reset()
        return groups

    groups = async_loop.run(start_and_abort())
    assert len(groups) == 2
    partial = [sample for group in groups for sample in group]
    before = copy.deepcopy(partial)
    for sample in partial:
        assert sample.status == Status.ABORTED
        assert 0 < sample.response_length < 200
        assert sample.metadata["start_rollout_id"] == 3
        check_log_probs(sample)

    async def go_on():
        await asyncio.gather(
            *(
                sglang_rollout.generate_and_rm_group(args, group, dict(state.sampling_params))
                for group in groups
            )
        )

    async_loop.run(go_on())
    for sample, old in zip(partial, before, strict=True):
        assert sample.tokens[: len(old.tokens)] == old.tokens
        assert sample.response_length == 200
        assert sample.status == Status.TRUNCATED
        assert sample.reward is not None
        check_log_probs(sample)


@pytest.mark.flags("--partial-rollout", "--mask-offpolicy-in-partial-rollout")
def test_tokens_of_an_earlier_rollout_are_masked_when_asked(args):
    sample = Sample(index=0, prompt="x")
    sample.tokens = [5, 6, 7]
    sample.append_response_tokens(tokens=[8, 9], log_probs=[-1.0, -2.0])
    sample.status = Status.ABORTED
    async_loop.run(sglang_rollout.generate(args, sample, params(args, ignore_eos=True)))
    assert sample.response_length == 8
    assert sample.loss_mask == [0, 0] + [1] * 6


def drop_odd_groups(args, samples, **kwargs):
    return DynamicFilterOutput(keep=samples[0].group_index % 2 == 0, reason="odd")


PATH = "tests.rollout.test_sglang_rollout."


@pytest.mark.flags("--dynamic-sampling-filter-path", PATH + "drop_odd_groups")
def test_dropped_groups_are_replaced_and_counted(args):
    output = sglang_rollout.generate_rollout(args, 0, source(args))
    assert len(output.samples) == 4
    assert all(group[0].group_index % 2 == 0 for group in output.samples)
    dropped = output.metrics["rollout/dynamic_filter/drop_odd"]
    assert 3 <= dropped <= 8


async def generate_two(args, sample, sampling_params):
    """A rollout that fans out into two samples."""
    other = copy.deepcopy(sample)
    for part, text in ((sample, "a"), (other, "z")):
        part.tokens = [5, 6]
        part.append_response_tokens(tokens=[7], log_probs=[-1.0], text=text)
        part.status = Status.COMPLETED
    return [sample, other]


async def generate_failed(args, sample, sampling_params):
    sample.status = Status.FAILED
    sample.metadata["failure"] = "the sandbox is gone"
    return sample


@pytest.mark.flags("--custom-generate-function-path", PATH + "generate_two")
def test_a_custom_function_may_fan_out_and_every_sample_is_graded(args):
    output = sglang_rollout.generate_rollout(args, 0, source(args))
    assert [[len(item) for item in group] for group in output.samples] == [[2] * 4] * 4
    first, second = output.samples[0][0]
    label = first.label
    assert first.reward == float(label == "a")
    assert second.reward == 0.0


def test_a_path_on_the_sample_wins(args):
    sample = Sample(
        index=0, prompt="say a", label="a", generate_function_path=PATH + "generate_two"
    )
    result = async_loop.run(sglang_rollout.generate_and_rm(args, sample, params(args)))
    assert [part.reward for part in result] == [1.0, 0.0]


@pytest.mark.flags("--custom-generate-function-path", PATH + "generate_failed")
def test_failing_groups_end_the_rollout_with_their_reason(args):
    with pytest.raises(RolloutError, match="5 groups .20 samples. failed .*the sandbox is gone"):
        sglang_rollout.generate_rollout(args, 0, source(args))


def test_a_router_that_is_gone_fails_the_samples_with_a_reason(args, monkeypatch):
    monkeypatch.setattr(http_client, "RETRY_SECONDS", 0.2)
    args.sglang_router_port = 1
    group = source(args).get_samples(1)[0]
    async_loop.run(sglang_rollout.generate_and_rm_group(args, group, params(args)))
    assert [sample.status for sample in group] == [Status.FAILED] * 4
    assert "127.0.0.1:1" in group[0].metadata["failure"]
    assert group[0].reward is None


def test_two_runs_in_one_process_do_not_meet(args, servers, model_folder, tmp_path_factory):
    other = make_args(
        model_folder, tmp_path_factory.mktemp("other"), "--rollout-temperature", "0.5"
    )
    assert sglang_rollout.GenerateState(args) is sglang_rollout.GenerateState(args)
    mine, theirs = sglang_rollout.GenerateState(args), sglang_rollout.GenerateState(other)
    assert mine is not theirs
    assert (mine.sampling_params["temperature"], theirs.sampling_params["temperature"]) == (
        1.0,
        0.5,
    )
    mine.aborted = True
    assert not theirs.aborted
    # the state stays behind when arguments travel to another process
    assert sglang_rollout.GenerateState(pickle.loads(pickle.dumps(args))) is not mine


@contextlib.contextmanager
def doors(router, count):
    """Addresses in front of the router, each with the requests that came by it."""
    made = []

    def make(seen):
        async def handle(request):
            body = await request.read()
            seen.append(json.loads(body) if body else None)
            url = router + request.path
            send = functools.partial(ClientSession.request, method=request.method, url=url)
            headers = {"Content-Type": request.content_type}
            async with (
                ClientSession(headers=headers) as session,
                send(session, data=body) as answer,
            ):
                return web.Response(body=await answer.read(), status=answer.status)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        return TestServer(app)

    async def open_all():
        for _ in range(count):
            seen = []
            server = make(seen)
            await server.start_server()
            made.append((server, server.port, seen))

    async def close_all():
        for server, _, _ in made:
            await server.close()

    async_loop.run(open_all())
    try:
        yield [(port, seen) for _, port, seen in made]
    finally:
        async_loop.run(close_all())


def test_two_runs_at_once_use_their_own_engines_and_settings(args, model_folder, tmp_path_factory):
    flags = ("--rollout-temperature", "0.5", "--n-samples-per-prompt", "2")
    other = make_args(model_folder, tmp_path_factory.mktemp("other"), *flags)
    runs = (args, other)
    with doors(f"http://127.0.0.1:{args.sglang_router_port}", 2) as addresses:
        for run, (port, _) in zip(runs, addresses, strict=True):
            run.sglang_router_ip, run.sglang_router_port = "127.0.0.1", port
        http_client.set_liveness_check(f"http://127.0.0.1:{addresses[1][0]}", lambda: False)
        with ThreadPoolExecutor() as pool:
            calls = [
                pool.submit(sglang_rollout.generate_rollout, run, 0, source(run)) for run in runs
            ]
            outputs = [call.result() for call in calls]
    for run, output, (_, seen) in zip(runs, outputs, addresses, strict=True):
        assert [len(group) for group in output.samples] == [run.n_samples_per_prompt] * 4
        generated = [body for body in seen if body and "sampling_params" in body]
        assert {body["sampling_params"]["temperature"] for body in generated} == {
            run.rollout_temperature
        }
        assert len(generated) == 4


def test_model_urls(args):
    url = f"http://127.0.0.1:{args.sglang_router_port}"
    assert sglang_rollout.get_model_url(args, "anything") == url + "/generate"
    args.sglang_model_routers = {"actor": ("127.0.0.1", 5), "judge": ("127.0.0.1", 6)}
    assert sglang_rollout.get_model_url(args, "judge", "/v1/x") == "http://127.0.0.1:6/v1/x"
    with pytest.raises(ValueError, match="no model named 'critic'; there are actor, judge"):
        sglang_rollout.get_model_url(args, "critic")


def drop_everything(args, samples):
    """For `--dynamic-sampling-filter-path`."""
    return DynamicFilterOutput(keep=False, reason="all equal")


@pytest.mark.flags(
    "--dynamic-sampling-filter-path", "tests.rollout.test_sglang_rollout.drop_everything"
)
def test_a_filter_that_drops_everything_ends_the_rollout(args, monkeypatch):
    monkeypatch.setattr(collecting, "_DROPPED_IN_A_ROW", 10)
    with pytest.raises(RolloutError, match="dropped 40 groups in a row .the last: all equal"):
        sglang_rollout.generate_rollout(args, 0, source(args))


REWARDS = {"nothing": None, "nan": float("nan"), "inf": {"score": float("-inf")}}


async def strange_reward(args, sample):
    """For `--custom-rm-path`."""
    return REWARDS[args.strange]


@pytest.mark.parametrize("strange", REWARDS)
@pytest.mark.flags("--custom-rm-path", "tests.rollout.test_sglang_rollout.strange_reward")
def test_a_reward_that_is_no_finite_number_ends_the_rollout(strange, args):
    args.strange = strange
    with pytest.raises(RolloutError, match="strange_reward gave sample .* the reward"):
        sglang_rollout.generate_rollout(args, 0, source(args))


async def generate_nothing(args, sample, sampling_params):
    """For `--custom-generate-function-path`."""
    return args.generated


@pytest.mark.parametrize("generated", [None, [], "text", [None]])
@pytest.mark.flags(
    "--custom-generate-function-path", "tests.rollout.test_sglang_rollout.generate_nothing"
)
def test_a_generate_function_that_returns_no_sample_is_named_once(generated, args, caplog):
    args.generated = generated
    with pytest.raises(RolloutError, match="generate_nothing returned .* a sample or a list"):
        sglang_rollout.generate_rollout(args, 0, source(args))
    async_loop.run(asyncio.sleep(0))
    gc.collect()
    assert "never retrieved" not in caplog.text  # of the other groups, which failed as well
