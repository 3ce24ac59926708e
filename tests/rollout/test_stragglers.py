"""What is slow does not hold up a finished batch; what hangs ends the run with a sentence."""

import asyncio
import time

import pytest

from slime.rollout import async_loop, sglang_rollout
from slime.rollout.errors import RolloutError
from slime.samples.sample import Sample
from tests.engines.real_servers import make_args
from tests.rollout.test_sglang_rollout import source

PATH = "tests.rollout.test_stragglers."
SLOW_GROUP = 1
ARRIVED: list[Sample] = []


async def slow_judge(args, sample):
    """For `--custom-rm-path`: one group takes for ever."""
    if sample.group_index == SLOW_GROUP:
        await asyncio.sleep(1000)
    return 1.0


STUBBORN = ("--custom-generate-function-path", PATH + "stubborn_generate")
OVER_SAMPLING = ("--over-sampling-batch-size", "5", "--rollout-abort-grace", "0.3")


@pytest.mark.flags("--custom-rm-path", PATH + "slow_judge", *OVER_SAMPLING)
def test_a_slow_judge_costs_the_grace_and_its_prompt_comes_again(args):
    prompts = source(args)
    started = time.monotonic()
    output = sglang_rollout.generate_rollout(args, 0, prompts)
    assert time.monotonic() - started < 10
    assert [group[0].group_index for group in output.samples] == [0, 2, 3, 4]
    assert output.metrics["rollout/aborted_groups"] == 1
    (again,) = prompts.get_samples(1)
    assert [sample.group_index for sample in again] == [SLOW_GROUP] * 4
    assert [sample.status for sample in again] == [Sample.Status.PENDING] * 4
    assert again[0].tokens == []


async def judge_after_the_slow_group(args, sample):
    """For `--custom-rm-path`: the others wait until one group has come, whose judge is for ever."""
    if sample.group_index == SLOW_GROUP:
        ARRIVED.append(sample)
        await asyncio.sleep(1000)
    while SLOW_GROUP is not None and len(ARRIVED) < 4:
        await asyncio.sleep(0.01)
    return 1.0


@pytest.mark.flags(
    "--custom-rm-path", PATH + "judge_after_the_slow_group", "--partial-rollout", *OVER_SAMPLING
)
def test_partial_rollouts_keep_the_response_that_waits_for_its_judge(args, monkeypatch):
    prompts = source(args)
    sglang_rollout.generate_rollout(args, 0, prompts)
    (again,) = prompts.buffer
    tokens = [list(sample.tokens) for sample in again]
    assert all(sample.response_length and sample.reward is None for sample in again)
    monkeypatch.setattr("tests.rollout.test_stragglers.SLOW_GROUP", None)
    output = sglang_rollout.generate_rollout(args, 1, prompts)
    (group,) = (group for group in output.samples if group[0].group_index == 1)
    assert [sample.tokens for sample in group] == tokens
    assert [sample.reward for sample in group] == [1.0] * 4


async def stubborn_generate(args, sample, sampling_params):
    """For `--custom-generate-function-path`: one group takes no notice of being cancelled."""
    if sample.group_index == SLOW_GROUP:
        for _ in range(50):
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                sample.tokens = [5, 5, 5]
    sample.tokens = [5, 6]
    sample.append_response_tokens(tokens=[7], log_probs=[-1.0], text="a")
    sample.status = Sample.Status.COMPLETED
    return sample


@pytest.mark.flags(
    "--custom-generate-function-path",
    PATH + "stubborn_generate",
    "--partial-rollout",
    *OVER_SAMPLING,
)
def test_a_function_that_cannot_be_cancelled_writes_into_nobodys_sample(args):
    prompts = source(args)
    started = time.monotonic()
    sglang_rollout.generate_rollout(args, 0, prompts)
    assert time.monotonic() - started < 4
    (again,) = prompts.buffer
    time.sleep(0.3)
    assert [sample.tokens for sample in again] == [[]] * 4


async def hung(args, sample, *rest):
    """A generate or reward function that never comes back."""
    await asyncio.sleep(1000)


async def blocking(args, sample):
    """A reward function that blocks the event loop."""
    if sample.index == 0:
        time.sleep(9.0)
    return 1.0


STALL = ("--rollout-stall-timeout", "3")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--custom-rm-path", PATH + "hung"), "the reward of sample", id="reward"),
        pytest.param(("--custom-rm-path", PATH + "blocking"), "the re", id="blocking-reward"),
        pytest.param(
            ("--custom-rm-path", PATH + "hung", "--group-rm"), "the reward of sample", id="group-rm"
        ),
        pytest.param(
            ("--custom-generate-function-path", PATH + "hung"), "sample 0 of", id="generate"
        ),
    ],
)
def test_a_hung_function_of_a_user_ends_the_run_with_a_sentence(
    servers, model_folder, tmp_path, words, said
):
    args = make_args(model_folder, tmp_path, *words, *STALL)
    args.sglang_router_ip = servers.args.sglang_router_ip
    args.sglang_router_port = servers.args.sglang_router_port
    started = time.monotonic()
    message = f"nothing was finished for 3 s .--rollout-stall-timeout.: .* for {said}"
    with pytest.raises(RolloutError, match=message):
        sglang_rollout.generate_rollout(args, 0, source(args))
    assert time.monotonic() - started < 30
    async_loop.run(asyncio.sleep(0))  # the loop of this process is free again
