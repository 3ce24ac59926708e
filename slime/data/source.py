"""Where prompts come from: a prompt set with an exact cursor, and a buffer of groups to go on with.

What is saved is what has been trained: a rollout that is being generated while an earlier one is
saved must not move the saved cursor. The state after a rollout is kept when the next one (as the
rollout function names it, `set_current_rollout_id`) takes its first prompts, or when
`commit(rollout_id)` says that it is complete; `save(rollout_id)` writes it.
"""

import abc
import copy
import logging
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from slime.arguments.errors import ConfigError, Problem
from slime.data.prompt_sets import load_prompts
from slime.data.prompts import Tokenizer
from slime.data.source_state import History, SourceState, read_state, state_path, write_state
from slime.hooks.loading import load_function
from slime.hooks.sample_hooks import current_rollout_id
from slime.samples.sample import Sample

logger = logging.getLogger(__name__)
Group = list[Sample]


class DataSource(abc.ABC):
    """What a rollout function needs of a source of prompts; the class at `--data-source-path`."""

    has_buffer = False  # whether `add_samples` takes groups back

    @abc.abstractmethod
    def get_samples(self, num_samples: int) -> list[Group]:
        """The next `num_samples` groups (one prompt each, n_samples_per_prompt samples)."""

    @abc.abstractmethod
    def add_samples(self, samples: list[Group]) -> None:
        """Take groups back, to be handed out again."""

    @abc.abstractmethod
    def save(self, rollout_id: int) -> None:
        """Save what is needed to go on after rollout `rollout_id`."""

    @abc.abstractmethod
    def load(self, rollout_id: int | None = None) -> None:
        """Go on after rollout `rollout_id`."""


class RolloutDataSource(DataSource):
    """Prompts of `--prompt-data`, epoch after epoch; each group has identities that never
    repeat.
    """

    def __init__(
        self, args: Namespace, tokenizer: Tokenizer | None = None, processor: Any = None
    ) -> None:
        """Read the prompt set.

        Args:
            args: The resolved arguments.
            tokenizer: For the chat template and the prompt lengths; when it is left out and needed,
                the one of `--hf-checkpoint` is loaded.
            processor: Of multimodal models.

        Raises:
            ConfigError: The prompt set is missing or unreadable (see `Dataset`).
        """
        self.args = args
        self.epoch_id = 0
        self.sample_offset = 0
        self.sample_group_index = 0
        self.sample_index = 0
        self.metadata: dict[str, Any] = {}
        self.dataset = load_prompts(args, tokenizer, processor)
        self._history = History(
            args.rollout_batch_size, getattr(args, "start_rollout_id", None) or 0
        )
        self._start_epoch()

    def __len__(self) -> int:
        return self.num_prompts() or 0

    def num_prompts(self) -> int | None:
        """Prompts in one epoch; None when the rollout function brings its own."""
        return None if self.dataset is None else len(self.dataset)

    def get_samples(self, num_samples: int) -> list[Group]:
        """The next groups of the prompt set; the end of an epoch is crossed as often as needed."""
        self._history.before_handing_out(current_rollout_id(), self._state)
        groups = self._new_groups(num_samples)
        self._history.after_handing_out(len(groups), self._state)
        return groups

    def add_samples(self, samples: list[Group]) -> None:
        """Refused: this source has no buffer.

        Raises:
            RuntimeError: Always.
        """
        raise RuntimeError(
            f"{type(self).__name__} takes no samples back; partial rollouts need "
            "--data-source-path = slime.rollout.data_source.RolloutDataSourceWithBuffer"
        )

    def commit(self, rollout_id: int, in_flight: Sequence[Group] = ()) -> None:
        """Rollout `rollout_id` is complete: remember the state of this moment for `save`.

        Args:
            rollout_id: The rollout whose samples are about to be trained on.
            in_flight: Groups handed out whose generation goes on into later rollouts; after a
                resume they are generated anew, before any other prompt.
        """
        fresh = [[sample.as_handed_out() for sample in group] for group in in_flight]
        state = self._state()
        state.buffer = [*fresh, *state.buffer]
        self._history.commit(rollout_id, state)

    def save(self, rollout_id: int) -> None:
        """Write the state after rollout `rollout_id` under `--save` (nothing without `--save`)."""
        if self.args.save:
            state = self._history.state_after(rollout_id) or self._state()
            state.rollout_id = rollout_id
            write_state(state_path(self.args.save, rollout_id), state)

    def load(self, rollout_id: int | None = None) -> None:
        """Restore the state after rollout `rollout_id` (default: of the latest checkpoint) from
        `--load`.

        Raises:
            ConfigError: The state is unreadable or was written by a newer version.
        """
        state = read_state(self.args.load, rollout_id)
        if state is None:
            return
        self.epoch_id, self.sample_offset = state.epoch_id, state.sample_offset
        self.sample_group_index, self.sample_index = state.sample_group_index, state.sample_index
        self.metadata = state.metadata
        self._set_buffer(state.buffer)
        self._history = History(self.args.rollout_batch_size, state.rollout_id + 1)
        if self.dataset is None:
            return
        if state.num_prompts != len(self.dataset):
            logger.warning(
                "the prompt set has %d prompts, it had %s when the checkpoint was written: the "
                "epoch goes on at prompt %d of the present set",
                len(self.dataset),
                state.num_prompts,
                min(self.sample_offset, len(self.dataset)),
            )
        self._start_epoch()

    def _start_epoch(self) -> None:
        if self.dataset is not None:
            self.dataset.start_epoch(self.epoch_id, shuffle=self.args.rollout_shuffle)

    def _next_prompt(self) -> Sample:
        if self.dataset is None:
            return Sample()
        if self.sample_offset >= len(self.dataset):
            self.epoch_id += 1
            self.sample_offset = 0
            self._start_epoch()
        prompt = self.dataset[self.sample_offset]
        self.sample_offset += 1
        return prompt

    def _new_groups(self, num_groups: int) -> list[Group]:
        return [self._new_group(self._next_prompt()) for _ in range(num_groups)]

    def _new_group(self, prompt: Sample) -> Group:
        group = []
        for _ in range(self.args.n_samples_per_prompt):
            sample = copy.deepcopy(prompt)
            sample.group_index = self.sample_group_index
            sample.index = sample.rollout_id = self.sample_index
            self.sample_index += 1
            group.append(sample)
        self.sample_group_index += 1
        return group

    def _state(self) -> SourceState:
        return SourceState(
            epoch_id=self.epoch_id,
            sample_offset=self.sample_offset,
            sample_group_index=self.sample_group_index,
            sample_index=self.sample_index,
            num_prompts=self.num_prompts(),
            metadata=copy.deepcopy(self.metadata),
        )

    def _set_buffer(self, buffer: list[Group]) -> None:
        if buffer:
            raise ConfigError(
                [
                    Problem(
                        "--data-source-path",
                        type(self).__name__,
                        f"the checkpoint holds {len(buffer)} buffered groups, this source has "
                        "no buffer",
                        "use RolloutDataSourceWithBuffer",
                    )
                ]
            )


class RolloutDataSourceWithBuffer(RolloutDataSource):
    """As its base, and groups given back are handed out again before new prompts."""

    has_buffer = True

    def __init__(
        self, args: Namespace, tokenizer: Tokenizer | None = None, processor: Any = None
    ) -> None:
        super().__init__(args, tokenizer, processor)
        self.buffer: list[Group] = []
        path = args.buffer_filter_path or "slime.filters.buffer.pop_first"
        self._take_from_buffer = load_function(path)

    def get_samples(self, num_samples: int) -> list[Group]:
        """Buffered groups, chosen by `--buffer-filter-path`, then new ones."""
        self._history.before_handing_out(current_rollout_id(), self._state)
        buffered: list[Group] = []
        if self.buffer and num_samples > 0:
            rollout_id = current_rollout_id()
            buffered = self._take_from_buffer(self.args, rollout_id, self.buffer, num_samples)
        if len(buffered) > num_samples:
            raise ValueError(
                f"--buffer-filter-path = {self.args.buffer_filter_path}: took {len(buffered)} "
                f"groups, {num_samples} were asked for"
            )
        groups = buffered + self._new_groups(num_samples - len(buffered))
        self._history.after_handing_out(len(groups), self._state)
        return groups

    def add_samples(self, samples: list[Group]) -> None:
        """Put groups at the end of the buffer.

        Raises:
            TypeError: Something is no non-empty list of samples.
        """
        for group in samples:
            if not isinstance(group, list) or not group:
                raise TypeError(f"a group must be a non-empty list of samples, not {group!r}")
        self.buffer.extend(samples)
        self._history.taken_back()

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Merge into the metadata that is saved with the cursor."""
        self.metadata.update(metadata)

    def get_metadata(self) -> dict[str, Any]:
        """The metadata that is saved with the cursor."""
        return self.metadata

    def get_buffer_length(self) -> int:
        """Number of buffered groups."""
        return len(self.buffer)

    def _state(self) -> SourceState:
        state = super()._state()
        state.buffer = copy.deepcopy(self.buffer)
        return state

    def _set_buffer(self, buffer: list[Group]) -> None:
        self.buffer = buffer
