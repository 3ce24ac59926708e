"""Several prompt sets mixed by weight."""

from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from slime.arguments.errors import ConfigError
from slime.data.prompt_sets import load_prompts
from slime.data.source import RolloutDataSourceWithBuffer
from slime.samples.sample import Sample

Args = Callable[..., Namespace]
SIZES = {"a": 6, "b": 3}


@pytest.fixture
def mixed_args(source_args: Args, write_jsonl: Callable[..., str]) -> Args:
    """`mixed_args(spec)`: six prompts a0.. in set a, three prompts b0.. in set b."""

    def build(spec: str, **changes: object) -> Namespace:
        paths = {
            name: write_jsonl(
                [{"input": f"{name}{i}", "answer": str(i)} for i in range(size)], f"{name}.jsonl"
            )
            for name, size in SIZES.items()
        }
        return source_args(1, prompt_data=spec.format(**paths), **changes)

    return build


def prompts(groups: list[list[Sample]]) -> list[str]:
    return [group[0].prompt for group in groups]


@pytest.mark.parametrize("shuffle", [False, True])
def test_without_weights_an_epoch_has_every_prompt_once(mixed_args: Args, shuffle: bool) -> None:
    args = mixed_args("a={a},b={b}", rollout_shuffle=shuffle)
    source = RolloutDataSourceWithBuffer(args)
    everything = sorted([f"a{i}" for i in range(6)] + [f"b{i}" for i in range(3)])
    epochs = [prompts(source.get_samples(9)) for _ in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [everything] * 3
    assert (len({tuple(epoch) for epoch in epochs}) > 1) == shuffle
    assert source.epoch_id == 2


@pytest.mark.parametrize("shuffle", [False, True])
def test_weights_are_shares_of_what_is_served(mixed_args: Args, shuffle: bool) -> None:
    """a : b = 1 : 2 of nine prompts: a serves half of itself in an epoch, b itself twice."""
    args = mixed_args("a:1={a},b:2={b}", rollout_shuffle=shuffle)
    source = RolloutDataSourceWithBuffer(args)
    served = [prompts(source.get_samples(9)) for _ in range(4)]
    for epoch in served:
        assert Counter(prompt[0] for prompt in epoch) == {"a": 3, "b": 6}
    counts = Counter(prompt for epoch in served for prompt in epoch)
    assert counts == {f"a{i}": 2 for i in range(6)} | {f"b{i}": 8 for i in range(3)}


def test_an_unshuffled_mixture_is_evenly_interleaved(mixed_args: Args) -> None:
    source = RolloutDataSourceWithBuffer(mixed_args("a={a},b={b}"))
    names = [prompt[0] for prompt in prompts(source.get_samples(9))]
    assert "".join(names) == "abaabaaba"
    at = [i for i, name in enumerate(names) if name == "b"]
    assert all(later - earlier == 3 for earlier, later in pairwise(at))


def test_source_names_reach_the_samples(
    mixed_args: Args, source_args: Args, write_jsonl: Callable[..., str]
) -> None:
    groups = RolloutDataSourceWithBuffer(mixed_args("a={a},b={b}")).get_samples(9)
    assert {(s.prompt[0], s.metadata["source_name"]) for g in groups for s in g} == {
        ("a", "a"),
        ("b", "b"),
    }
    own = [
        {"input": "x", "answer": "1", "source_name": "own"},
        {"input": "y", "answer": "1", "metadata": {"source_name": "deep"}},
        {"input": "z", "answer": "1"},
    ]
    path = write_jsonl(own, "own.jsonl")
    named = RolloutDataSourceWithBuffer(source_args(1, prompt_data=f"file={path}"))
    names = [group[0].metadata["source_name"] for group in named.get_samples(3)]
    assert names == ["own", "deep", "file"]
    plain = RolloutDataSourceWithBuffer(source_args(1, prompt_data=path))
    assert [g[0].metadata for g in plain.get_samples(3)][2] == {}


@pytest.mark.parametrize("taken", [4, 9, 13, 40])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_resumed_mixture_goes_on_as_the_first_would_have(
    mixed_args: Args, shuffle: bool, taken: int
) -> None:
    args = mixed_args("a:1={a},b:2={b}", rollout_shuffle=shuffle)
    source = RolloutDataSourceWithBuffer(args)
    source.get_samples(taken)
    source.commit(0)
    source.save(0)
    expected = prompts(source.get_samples(12))
    resumed = RolloutDataSourceWithBuffer(args)
    resumed.load(0)
    assert prompts(resumed.get_samples(12)) == expected


def test_a_mistake_names_its_file(mixed_args: Args) -> None:
    args = mixed_args("a={a},b={b}@[5:]")
    with pytest.raises(ConfigError, match=r"b\.jsonl@\[5:\]: no prompt is left of 0"):
        load_prompts(args, None, None)
