"""Rollouts that nothing generated: a load of known lengths, for tests and benchmarks of the rest.

`--rollout-function-path slime.rollout.forged_rollout.generate_rollout --debug-train-only`, and in
`--load-forge-rollout-data` a JSON file of what to make up:

    {"prompt_lengths": [512], "response_lengths": [100, 4000], "rewards": [0, 1], "seconds": 2.5}

The sample of index i gets the lengths and the reward at i, modulo their number. Its tokens and
log-probs are random, and follow from `seed` (0 unless given) and i alone. Each call sleeps for
`seconds` (0 unless given), as if engines had been at work.
"""

import json
import math
import time
from argparse import Namespace
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from slime.arguments.errors import ConfigError, Problem
from slime.rollout.base_types import RolloutFnTrainOutput
from slime.rollout.errors import RolloutError
from slime.samples.packed import put
from slime.samples.sample import Sample

_OPTION = "--load-forge-rollout-data"


@dataclass(frozen=True)
class Load:
    """What to make up; lengths in tokens, at least 1."""

    prompt_lengths: list[int]
    response_lengths: list[int]
    rewards: list[float]
    seconds: float = 0.0
    seed: int = 0

    @classmethod
    def read(cls, path: str) -> "Load":
        """The load that a file describes.

        Raises:
            ConfigError: the file cannot be read, or names something else than a load does.
        """
        try:
            load = cls(**json.loads(Path(path).read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise _refused(path, f"describes no load: {error}") from error
        for name in ("prompt_lengths", "response_lengths", "rewards"):
            values = getattr(load, name)
            if not isinstance(values, list) or not values or not all(map(_is_number, values)):
                raise _refused(path, f"{name} is {values!r}, no list of numbers")
            if name != "rewards" and not all(isinstance(v, int) and v > 0 for v in values):
                raise _refused(path, f"{name} is {values!r}, no list of whole numbers from 1")
        if not _is_number(load.seconds) or load.seconds < 0:
            raise _refused(path, f"seconds is {load.seconds!r}, no number from 0")
        if type(load.seed) is not int or load.seed < 0:
            raise _refused(path, f"seed is {load.seed!r}, no whole number from 0")
        return load

    def fill(self, sample: Sample, vocab_size: int) -> None:
        """Give a sample tokens, log-probs and a reward, as if it had been generated."""
        index = sample.index or 0
        prompt, response = (
            lengths[index % len(lengths)]
            for lengths in (self.prompt_lengths, self.response_lengths)
        )
        random = np.random.default_rng((self.seed, index))
        put(sample, "tokens", random.integers(vocab_size, size=prompt, dtype=np.int32))
        sample.append_response_tokens(
            tokens=random.integers(vocab_size, size=response).tolist(),
            log_probs=np.log1p(-random.random(response, dtype=np.float32)).tolist(),
        )
        sample.reward = self.rewards[index % len(self.rewards)]
        sample.status = Sample.Status.COMPLETED


def generate_rollout(
    args: Namespace, rollout_id: int, data_buffer: Any, evaluation: bool = False
) -> RolloutFnTrainOutput:
    """The next `--rollout-batch-size` groups of the data source, filled with what is made up.

    Raises:
        ConfigError: the file of the load is wrong.
        RolloutError: evaluation is asked for.
    """
    if evaluation:
        raise RolloutError(
            "forged rollouts evaluate nothing: leave out --eval-interval, or give "
            "--eval-function-path slime.rollout.sglang_rollout.generate_rollout"
        )
    load = Load.read(args.load_forge_rollout_data)
    groups = data_buffer.get_samples(args.rollout_batch_size)
    for sample in (sample for group in groups for sample in group):
        load.fill(sample, int(args.hf_architecture["vocab_size"]))
    time.sleep(load.seconds)
    return RolloutFnTrainOutput(groups)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _refused(path: str, message: str) -> ConfigError:
    names = ", ".join(field.name for field in fields(Load))
    return ConfigError([Problem(_OPTION, path, message, f"a JSON object of {names}")])
