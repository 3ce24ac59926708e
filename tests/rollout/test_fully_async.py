"""The background worker against a real router and engine."""

import asyncio
import time

import pytest
import requests

from slime.data.source import RolloutDataSourceWithBuffer
from slime.rollout import async_loop
from slime.rollout.errors import RolloutError
from slime.rollout.fully_async_rollout import (
    AsyncRolloutWorker,
    generate_rollout_fully_async,
    stop_worker,
)
from slime.rollout.pausing import continue_engines, pause_engines
from slime.samples.groups import flatten
from slime.samples.sample import Sample
from tests.rollout.test_sglang_rollout import check_log_probs

Status = Sample.Status
PATH = "tests.rollout.test_fully_async."
FULLY_ASYNC = (
    "--rollout-function-path",
    "slime.rollout.fully_async_rollout.generate_rollout_fully_async",
)


@pytest.fixture
def source(args):
    yield RolloutDataSourceWithBuffer(args)
    stop_worker(args)


def set_version(servers, version):
    for url in servers.engine_urls:
        body = {"new_version": str(version), "abort_all_requests": False}
        requests.post(f"{url}/update_weight_version", json=body, timeout=10).raise_for_status()


@pytest.fixture
def versions(servers):
    """Set the engine's weight version; it has its first one again at the end."""
    yield lambda version: set_version(servers, version)
    set_version(servers, "default")


def running_requests(servers):
    answer = requests.get(servers.engine_urls[0] + "/v1/loads", timeout=10).json()
    return answer["loads"][0]["num_running_reqs"]


def indices(output):
    return [sample.index for sample in flatten(output.samples)]


@pytest.mark.flags("--num-rollout", "3")
def test_rollouts_follow_the_data_and_the_last_leaves_nothing_behind(args, source):
    outputs = [generate_rollout_fully_async(args, i, source) for i in range(3)]
    assert sorted(i for output in outputs for i in indices(output)) == list(range(48))
    for sample in flatten(outputs[1].samples):
        sample.check_alignment()
        assert sample.reward is not None
        check_log_probs(sample)
    # nothing was begun that the run does not train on
    assert source.sample_index == 48
    assert outputs[2].metrics["rollout/groups_in_flight"] == 0
    assert outputs[2].metrics["rollout/queued_groups"] == 0


@pytest.mark.flags("--num-rollout", "100", "--max-weight-lag", "3", *FULLY_ASYNC)
def test_a_worker_holds_back_when_nobody_fetches(args, source):
    generate_rollout_fully_async(args, 0, source)
    worker = args.async_rollout_worker
    deadline = time.monotonic() + 30
    while worker.queue_size() < 8 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    # with the rollout that waits for the trainer, three are ready; that is all that was begun
    assert worker.queue_size() == 8
    assert source.sample_group_index == 12


@pytest.mark.flags("--num-rollout", "100")
def test_a_resumed_run_generates_what_was_open_and_nothing_twice(args, source, tmp_path):
    args.save = str(tmp_path / "saved")
    first = [generate_rollout_fully_async(args, i, source) for i in range(3)]
    source.save(1)  # rollout 2 is trained on later: it was lost in a crash
    stop_worker(args)
    del args.async_rollout_worker
    args.load = args.save
    again = RolloutDataSourceWithBuffer(args)
    again.load(1)
    trained = indices(first[0]) + indices(first[1])
    for rollout_id in range(2, 5):
        trained += indices(generate_rollout_fully_async(args, rollout_id, again))
    assert len(trained) == len(set(trained)) == 80
    # none was left behind: all that is open or new lies above, without a gap
    handed_out = set(range(again.sample_index))
    still_open = {s.index for group in args.async_rollout_worker._open_groups() for s in group}
    assert handed_out - set(trained) == still_open


@pytest.mark.flags("--num-rollout", "6", "--max-weight-lag", "2")
def test_no_group_gets_too_old_where_each_rollout_updates_the_weights(args, source, versions):
    """The slowest trainer: it finishes rollout r - 1 only when r is collected and waits."""
    for rollout_id in range(6):
        versions(max(rollout_id - 1, 0))
        output = generate_rollout_fully_async(args, rollout_id, source)
        time.sleep(0.3)  # the worker begins all that it may
        oldest = min(int(v) for s in flatten(output.samples) for v in s.weight_versions)
        assert rollout_id - oldest <= 2
        assert output.metrics["rollout/stale_groups"] == 0


@pytest.mark.flags("--num-rollout", "100", "--max-weight-lag", "2")
def test_what_became_too_old_in_the_queue_is_generated_anew(args, source, versions):
    versions(0)
    first = indices(generate_rollout_fully_async(args, 0, source))
    worker = args.async_rollout_worker
    while worker.queue_size() < 4:
        time.sleep(0.02)
    waiting = {sample.index for group in worker._open_groups() for sample in group}
    versions(9)  # updates went by while the finished groups waited
    outputs = [generate_rollout_fully_async(args, i, source) for i in (10, 11)]
    assert outputs[0].metrics["rollout/stale_groups"] == 4
    samples = [sample for output in outputs for sample in flatten(output.samples)]
    found = [sample.index for sample in samples]
    assert waiting <= set(found)
    assert len(set(first + found)) == 48
    assert {version for sample in samples for version in sample.weight_versions} == {"9"}


@pytest.mark.flags("--num-rollout", "100")
def test_engines_that_are_never_updated_end_the_run(args, source, versions):
    versions(0)
    with pytest.raises(RolloutError, match="rollout 3 gets tokens of weights 0, just generated"):
        for rollout_id in range(9):
            generate_rollout_fully_async(args, rollout_id, source)
    assert rollout_id == 3


@pytest.mark.flags("--num-rollout", "100", "--rollout-max-response-len", "150")
def test_an_update_in_mid_response_loses_no_token(args, source, servers, versions):
    versions(1)
    while running_requests(servers):  # what the test before broke off
        time.sleep(0.01)
    worker = AsyncRolloutWorker(args, source, concurrency=2)
    worker._state.sampling_params["ignore_eos"] = True
    worker.start()
    while running_requests(servers) < 8:
        time.sleep(0.01)
    time.sleep(0.1)
    pause_engines(servers.engine_urls)
    try:
        versions(2)
        assert worker.queue_size() == 0, "too quick to be paused in the middle"
        time.sleep(0.5)
        assert worker.queue_size() == 0  # they do stand still
    finally:
        continue_engines(servers.engine_urls)
    groups = []
    while len(groups) < 2:
        groups += worker.get_completed_groups(limit=1)
        time.sleep(0.02)
    worker.stop()
    assert sorted(number for number, _ in groups) == [0, 1]
    for sample in flatten([group for _, group in groups]):
        assert sample.response_length == 150
        assert sample.status == Status.TRUNCATED
        assert sample.weight_versions == ["1", "2"]
        (_, _, first_end), (_, second_start, second_end) = sample.weight_version_spans
        assert 0 < first_end == second_start < second_end == 150
        check_log_probs(sample)  # the weights are the same, so all tokens continue each other


@pytest.mark.flags("--num-rollout", "100", "--rollout-max-response-len", "200")
def test_stopping_gives_unfinished_groups_back(args, source, servers):
    worker = AsyncRolloutWorker(args, source, concurrency=3)
    worker._state.sampling_params["ignore_eos"] = True
    worker.start()
    while not running_requests(servers):
        time.sleep(0.01)
    worker.stop()
    assert source.get_buffer_length() > 0
    assert worker.queue_size() + source.get_buffer_length() == 3
    assert all(sample.tokens == [] for group in source.buffer for sample in group)
    next_groups = [group[0].group_index for group in source.get_samples(4)]
    finished = {group[0].group_index for _, group in worker.get_completed_groups()}
    assert next_groups == [*sorted({0, 1, 2} - finished), *range(3, 4 + len(finished))]


async def broken_reward(args, sample):
    """For `--custom-rm-path`."""
    if sample.index >= 20:
        raise ZeroDivisionError("one by zero")
    return 1.0


@pytest.mark.flags("--num-rollout", "100", "--custom-rm-path", PATH + "broken_reward")
def test_an_error_of_a_users_function_ends_the_run(args, source):
    with pytest.raises(ZeroDivisionError):
        for rollout_id in range(3):
            generate_rollout_fully_async(args, rollout_id, source)


class BrokenSource(RolloutDataSourceWithBuffer):
    def get_samples(self, num_samples):
        if self.sample_group_index == 6:
            raise ZeroDivisionError("one by zero")
        return super().get_samples(num_samples)


@pytest.mark.flags("--num-rollout", "100")
def test_an_error_of_a_users_source_ends_the_run(args):
    prompts = BrokenSource(args)
    try:
        with pytest.raises(ZeroDivisionError):
            for rollout_id in range(3):
                generate_rollout_fully_async(args, rollout_id, prompts)
    finally:
        stop_worker(args)


async def hung_reward(args, sample):
    """For `--custom-rm-path`."""
    await asyncio.sleep(1000)


@pytest.mark.flags(
    "--num-rollout", "9", "--custom-rm-path", PATH + "hung_reward", "--rollout-stall-timeout", "3"
)
def test_a_hung_reward_ends_the_run_with_a_sentence(args, source):
    with pytest.raises(RolloutError, match=r"nothing was finished for 3 s .*hung_reward"):
        generate_rollout_fully_async(args, 0, source)


def test_two_workers_in_one_process_do_not_meet(args, source):
    worker = AsyncRolloutWorker(args, source)
    assert not hasattr(args, "async_rollout_worker")
    assert worker.queue_size() == 0
    async_loop.run(asyncio.sleep(0))
