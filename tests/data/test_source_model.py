"""The data source against a model of it: an endless list of prompts and a queue of groups given
back. Resuming after any rollout goes on exactly as the model does.
"""

import contextvars
import tempfile
from argparse import Namespace
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.data.source import RolloutDataSourceWithBuffer
from slime.hooks.sample_hooks import set_current_rollout_id

# Of every rollout: how many groups it takes in each of its calls, how many of them it gives back.
ROLLOUTS = st.lists(
    st.tuples(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(0, 4)),
    min_size=1,
    max_size=6,
)


class Model:
    """(epoch, prompt, group_index) of what is served."""

    def __init__(self, num_prompts: int) -> None:
        self.num_prompts = num_prompts
        self.next_group = 0
        self.buffer: deque[tuple[str, int]] = deque()

    def take(self, count: int) -> list[tuple[str, int]]:
        served = []
        for _ in range(count):
            if self.buffer:
                served.append(self.buffer.popleft())
            else:
                served.append((f"p{self.next_group % self.num_prompts}", self.next_group))
                self.next_group += 1
        return served


def play(
    rollouts: list[tuple[list[int], int]],
    first: int,
    take: Callable[[int], list[Any]],
    give_back: Callable[[list[Any]], None],
    end: Callable[[int], None],
) -> list[list[Any]]:
    """What every rollout was served."""
    history = []
    for rollout_id, (calls, back) in enumerate(rollouts, start=first):

        def one(rollout_id: int = rollout_id, calls: list[int] = calls, back: int = back) -> None:
            set_current_rollout_id(rollout_id)
            served = [group for count in calls for group in take(count)]
            history.append(served)
            if back:
                give_back(served[-back:])

        contextvars.copy_context().run(one)
        end(rollout_id)
    return history


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "named by the context"])
@settings(max_examples=60, deadline=None)
@given(num_prompts=st.integers(1, 7), rollouts=ROLLOUTS, data=st.data())
def test_any_history_and_any_resume(
    commits: bool, num_prompts: int, rollouts: list[tuple[list[int], int]], data: st.DataObject
) -> None:
    resumed_at = data.draw(st.integers(0, len(rollouts) - 1))
    model = Model(num_prompts)
    expected = play(rollouts, 0, model.take, model.buffer.extend, lambda _: None)
    with tempfile.TemporaryDirectory() as folder:
        args = arguments(Path(folder), num_prompts)
        source = RolloutDataSourceWithBuffer(args)
        groups: dict[int, list[Any]] = {}

        def serve(source: RolloutDataSourceWithBuffer, count: int) -> list[tuple[str, int]]:
            taken = source.get_samples(count)
            groups.update({group[0].group_index: group for group in taken})
            return [(group[0].prompt, group[0].group_index) for group in taken]

        def run(source: RolloutDataSourceWithBuffer, first: int) -> list[list[Any]]:
            return play(
                rollouts[first:],
                first,
                lambda count: serve(source, count),
                lambda back: source.add_samples([groups[index] for _, index in back]),
                lambda rollout_id: source.commit(rollout_id) if commits else None,
            )

        assert run(source, 0) == expected
        source.save(resumed_at)
        resumed = RolloutDataSourceWithBuffer(args)
        resumed.load(resumed_at)
        assert run(resumed, resumed_at + 1) == expected[resumed_at + 1 :]


def arguments(folder: Path, num_prompts: int) -> Namespace:
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(f'{{"input": "p{i}"}}\n' for i in range(num_prompts)))
    return Namespace(
        prompt_data=str(prompts),
        rollout_global_dataset=True,
        rollout_max_prompt_len=None,
        apply_chat_template=False,
        apply_chat_template_kwargs={},
        input_key="input",
        label_key=None,
        tool_key="tools",
        metadata_key="metadata",
        multimodal_keys=None,
        rollout_seed=42,
        rollout_shuffle=False,
        n_samples_per_prompt=2,
        rollout_batch_size=4,
        buffer_filter_path=None,
        hf_checkpoint=None,
        start_rollout_id=None,
        save=str(folder),
        load=str(folder),
    )
