"""The data source: an exact cursor, a buffer that survives, and saves of what has been trained."""

import contextvars
import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime.arguments.errors import ConfigError
from slime.data.source import RolloutDataSource, RolloutDataSourceWithBuffer
from slime.data.source_state import state_path
from slime.hooks.sample_hooks import set_current_rollout_id
from slime.samples.sample import Sample

Args = Callable[..., Namespace]


def in_rollout(rollout_id: int | None, function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` as code of rollout `rollout_id` does."""

    def call() -> Any:
        set_current_rollout_id(rollout_id)
        return function(*args)

    return contextvars.copy_context().run(call)


def prompts(groups: list[list[Sample]]) -> list[str]:
    return [group[0].prompt for group in groups]


def test_three_prompts_eight_groups(source_args: Args) -> None:
    source = RolloutDataSourceWithBuffer(source_args(3))
    groups = source.get_samples(8)
    assert prompts(groups) == ["p0", "p1", "p2", "p0", "p1", "p2", "p0", "p1"]
    assert (source.epoch_id, source.sample_offset) == (2, 2)


def test_identities_never_repeat_and_groups_share_nothing(source_args: Args) -> None:
    source = RolloutDataSource(source_args(2, n_samples_per_prompt=3))
    groups = source.get_samples(3) + source.get_samples(2)
    assert [s.group_index for g in groups for s in g] == [i for i in range(5) for _ in range(3)]
    assert [s.index for g in groups for s in g] == list(range(15))
    assert [s.rollout_id for g in groups for s in g] == list(range(15))
    groups[0][0].metadata["x"] = groups[0][0].weight_versions.append("1")
    assert groups[0][1].metadata == {} and groups[0][1].weight_versions == []
    assert source.get_samples(1)[0][0].metadata == {}


def test_shuffled_epochs_each_hold_every_prompt(source_args: Args) -> None:
    source = RolloutDataSource(source_args(20, rollout_shuffle=True))
    first, second = prompts(source.get_samples(20)), prompts(source.get_samples(20))
    assert sorted(first) == sorted(second) == sorted(f"p{i}" for i in range(20))
    assert first != second != [f"p{i}" for i in range(20)]


@pytest.mark.parametrize("rollout_shuffle", [False, True])
def test_a_resumed_source_goes_on_as_the_first_would_have(
    source_args: Args, rollout_shuffle: bool
) -> None:
    args = source_args(5, rollout_shuffle=rollout_shuffle)
    source = RolloutDataSourceWithBuffer(args)
    source.get_samples(7)
    source.commit(0)
    source.save(0)
    expected = source.get_samples(6)
    resumed = RolloutDataSourceWithBuffer(args)
    resumed.load(0)
    assert [s.to_dict() for g in resumed.get_samples(6) for s in g] == [
        s.to_dict() for g in expected for s in g
    ]


@pytest.mark.parametrize("named_by", ["commit", "context", "nobody"])
def test_a_rollout_in_flight_is_not_saved_as_trained(source_args: Args, named_by: str) -> None:
    """Batch 4; rollout 1 is being generated when step 0 is saved: resume serves prompts 4-7."""
    args = source_args(100)
    source = RolloutDataSourceWithBuffer(args)
    for rollout_id in (0, 1):
        in_rollout(rollout_id if named_by == "context" else None, source.get_samples, 4)
        if named_by == "commit" and rollout_id == 0:
            source.commit(0)
    source.save(0)
    resumed = RolloutDataSourceWithBuffer(args)
    resumed.load(0)
    groups = resumed.get_samples(4)
    assert prompts(groups) == ["p4", "p5", "p6", "p7"]
    assert [group[0].group_index for group in groups] == [4, 5, 6, 7]


def test_filtered_groups_are_not_served_again(source_args: Args) -> None:
    """Twelve groups were handed out for four, then rollout 1 began: eight of them are done with."""
    args = source_args(100)
    source = RolloutDataSourceWithBuffer(args)
    for rollout_id in (0, 0, 1):
        in_rollout(rollout_id, source.get_samples, 6)
    source.save(0)
    resumed = RolloutDataSourceWithBuffer(args)
    resumed.load(0)
    assert prompts(resumed.get_samples(2)) == ["p12", "p13"]
    source.save(1)  # nothing began after it
    resumed.load(1)
    assert prompts(resumed.get_samples(2)) == ["p18", "p19"]


def test_groups_given_back_between_rollouts_belong_to_the_earlier_state(source_args: Args) -> None:
    args = source_args(100)
    source = RolloutDataSourceWithBuffer(args)
    groups = in_rollout(0, source.get_samples, 6)
    source.add_samples(groups[4:])
    in_rollout(1, source.get_samples, 4)
    source.save(0)
    resumed = RolloutDataSourceWithBuffer(args)
    resumed.load(0)
    assert prompts(resumed.get_samples(4)) == ["p4", "p5", "p6", "p7"]


def test_groups_in_flight_over_a_commit_come_first_and_fresh(source_args: Args) -> None:
    args = source_args(100)
    source = RolloutDataSourceWithBuffer(args)
    groups = source.get_samples(6)
    groups[4][0].append_response_tokens(tokens=[1], text="half")
    source.commit(0, in_flight=groups[4:])
    source.get_samples(4)
    source.save(0)
    resumed = RolloutDataSourceWithBuffer(args)
    resumed.load(0)
    again = resumed.get_samples(4)
    assert prompts(again) == ["p4", "p5", "p6", "p7"]
    assert again[0][0].response == "" and again[0][0].tokens == []
    assert [s.index for s in again[0]] == [s.index for s in groups[4]]


def test_the_buffer_of_partial_groups_survives(source_args: Args) -> None:
    args = source_args(100)
    source = RolloutDataSourceWithBuffer(args)
    source.update_metadata({"sets": [1]})
    groups = source.get_samples(8)
    partial = groups[6]
    partial[0].append_response_tokens(tokens=[5], log_probs=[-0.25], text="a")
    partial[0].status = Sample.Status.ABORTED
    source.add_samples([partial])
    source.commit(0)
    before = [sample.to_dict() for sample in partial]
    # The next rollout works on the very objects; the saved state must not see it.
    source.get_samples(1)[0][0].append_response_tokens(tokens=[6], log_probs=[-1.0], text="b")
    source.save(0)

    resumed = RolloutDataSourceWithBuffer(args)
    resumed.load(0)
    assert resumed.get_buffer_length() == 1 and resumed.get_metadata() == {"sets": [1]}
    served = resumed.get_samples(2)
    assert [sample.to_dict() for sample in served[0]] == before
    assert prompts(served) == ["p6", "p8"] and resumed.get_buffer_length() == 0


def test_the_buffer_filter_chooses(source_args: Args) -> None:
    source = RolloutDataSourceWithBuffer(source_args(9))
    groups = source.get_samples(3)
    source.add_samples(groups)
    assert prompts(source.get_samples(4)) == ["p0", "p1", "p2", "p3"]
    source.add_samples(groups)
    source._take_from_buffer = lambda args, rollout_id, buffer, n: list(buffer)
    with pytest.raises(ValueError, match="took 3 groups, 1 were asked for"):
        source.get_samples(1)


def take_last(
    args: Namespace, rollout_id: int | None, buffer: list[list[Sample]], num_samples: int
) -> list[list[Sample]]:
    """Writes down whose groups they are, and takes from the end."""
    taken = [buffer.pop() for _ in range(min(num_samples, len(buffer)))]
    for group in taken:
        group[0].metadata["taken_by"] = rollout_id
    return taken


def test_a_buffer_filter_by_path_knows_the_rollout(source_args: Args) -> None:
    source = RolloutDataSourceWithBuffer(source_args(9, buffer_filter_path=f"{__name__}.take_last"))
    source.add_samples(source.get_samples(3))
    groups = in_rollout(5, source.get_samples, 2)
    assert prompts(groups) == ["p2", "p1"] and source.get_buffer_length() == 1
    assert [group[0].metadata["taken_by"] for group in groups] == [5, 5]


def test_the_latest_checkpoint_is_found(source_args: Args) -> None:
    args = source_args(50)
    source = RolloutDataSourceWithBuffer(args)
    for rollout_id in (18, 19):
        source.get_samples(4)
        source.commit(rollout_id)
        source.save(rollout_id)
    (Path(args.save) / "latest_checkpointed_iteration.txt").write_text("19\n")
    resumed = RolloutDataSourceWithBuffer(args)
    resumed.load()
    assert prompts(resumed.get_samples(1)) == ["p8"]


def test_a_fresh_start_has_nothing_to_load(source_args: Args) -> None:
    for load in (None, "/nonexistent/folder"):
        source = RolloutDataSourceWithBuffer(source_args(3, load=load))
        source.load()
        source.load(-1)
        source.load(5)
        assert source.sample_offset == 0


def test_a_newer_or_broken_state_is_refused(source_args: Args) -> None:
    args = source_args(3)
    source = RolloutDataSourceWithBuffer(args)
    source.save(0)
    path = state_path(args.save, 0)
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"version": 99}))
    with pytest.raises(ConfigError, match="newer version"):
        source.load(0)
    path.write_text(path.read_text()[:40])
    with pytest.raises(ConfigError, match="no file of samples"):
        source.load(0)


def test_a_source_without_buffer_refuses_samples_and_buffered_states(source_args: Args) -> None:
    args = source_args(9)
    source = RolloutDataSourceWithBuffer(args)
    groups = source.get_samples(1)
    source.add_samples(groups)
    source.save(0)
    plain = RolloutDataSource(args)
    with pytest.raises(RuntimeError, match="RolloutDataSourceWithBuffer"):
        plain.add_samples(groups)
    with pytest.raises(ConfigError, match="1 buffered groups"):
        plain.load(0)
    with pytest.raises(TypeError, match="non-empty list"):
        source.add_samples([[]])


def test_without_a_prompt_set_groups_are_empty_but_counted(source_args: Args) -> None:
    source = RolloutDataSource(source_args(3, rollout_global_dataset=False))
    groups = source.get_samples(2)
    assert prompts(groups) == ["", ""] and groups[1][0].group_index == 1
    assert source.num_prompts() is None
