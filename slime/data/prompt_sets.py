"""The prompts of a run: one set, or several mixed by weight.

A mixture keeps the cursor of one set, (epoch, offset): what an epoch holds, and in which order, is
a function of seed and epoch alone.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from slime.arguments.prompt_sources import PromptSource, parse_prompt_sources, quotas, weights_of
from slime.data.prompts import Dataset, Tokenizer
from slime.hooks.loading import load_function
from slime.samples.sample import Sample


class Mixture:
    """Several prompt sets as one, an epoch of which has as many prompts as all of them together.

    A set serves its share of every epoch and goes on in the next one where it stopped, so all its
    prompts come equally often; a set with a large weight begins epochs of its own more often.
    """

    def __init__(self, datasets: Sequence[Dataset], weights: Sequence[float], seed: int) -> None:
        """The sets and their weights (only their ratios count), and the seed of the order."""
        self.datasets = list(datasets)
        self.seed = seed
        self.quotas = quotas(weights, sum(len(dataset) for dataset in datasets))
        self.samples: list[Sample] = []
        self.start_epoch(0, shuffle=False)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Sample:
        return self.samples[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def start_epoch(self, epoch_id: int, *, shuffle: bool) -> None:
        """Put the samples into the order of an epoch: shuffled, or evenly interleaved."""
        drawn = [
            _draw(dataset, epoch_id * quota, quota, shuffle)
            for dataset, quota in zip(self.datasets, self.quotas, strict=True)
        ]
        self.samples = [sample for samples in drawn for sample in samples]
        if shuffle:
            rng = np.random.default_rng([self.seed, epoch_id])
            order = rng.permutation(len(self.samples))
        else:
            # The k-th of n prompts of a set belongs at (k + 1/2) / n of the epoch.
            places = [(k + 0.5) / len(samples) for samples in drawn for k in range(len(samples))]
            order = np.argsort(places, kind="stable")
        self.samples = [self.samples[i] for i in order]


def _draw(dataset: Dataset, start: int, count: int, shuffle: bool) -> list[Sample]:
    """Prompts [start, start + count) of the endless row of the set's own epochs."""
    drawn: list[Sample] = []
    while len(drawn) < count:
        own_epoch, offset = divmod(start + len(drawn), len(dataset))
        dataset.start_epoch(own_epoch, shuffle=shuffle)
        drawn += dataset.samples[offset : offset + count - len(drawn)]
    return drawn


def load_prompts(
    args: Namespace, tokenizer: Tokenizer | None, processor: Any
) -> Dataset | Mixture | None:
    """The prompts of `--prompt-data`; None when the rollout function brings its own.

    Args:
        args: The resolved arguments.
        tokenizer: Of `--hf-checkpoint`; loaded when it is left out and needed.
        processor: Of multimodal models; as the tokenizer.

    Raises:
        ConfigError: A prompt set is missing or unreadable (see `Dataset`).
    """
    if not args.rollout_global_dataset or args.prompt_data is None:
        return None
    needs_tokenizer = args.apply_chat_template or args.rollout_max_prompt_len is not None
    if tokenizer is None and needs_tokenizer and args.hf_checkpoint:
        # By path, so that this room stays free of transformers in the build graph.
        tokenizer = load_function("slime.rollout.tokenizer.load_tokenizer")(args.hf_checkpoint)
    if processor is None and args.multimodal_keys and args.rollout_max_prompt_len is not None:
        processor = load_function("slime.rollout.tokenizer.load_processor")(args.hf_checkpoint)
    sources = parse_prompt_sources(args.prompt_data)
    datasets = [
        _load(args, source, args.rollout_seed + number, tokenizer, processor)
        for number, source in enumerate(sources)
    ]
    if len(datasets) == 1:
        return datasets[0]
    sizes = [len(dataset) for dataset in datasets]
    return Mixture(datasets, weights_of(sources, sizes), args.rollout_seed)


def _load(
    args: Namespace,
    source: PromptSource,
    seed: int,
    tokenizer: Tokenizer | None,
    processor: Any,
) -> Dataset:
    return Dataset(
        source.path,
        tokenizer,
        processor,
        args.rollout_max_prompt_len,
        prompt_key=args.input_key,
        multimodal_keys=args.multimodal_keys,
        label_key=args.label_key,
        tool_key=args.tool_key,
        metadata_key=args.metadata_key,
        seed=seed,
        apply_chat_template=args.apply_chat_template,
        apply_chat_template_kwargs=args.apply_chat_template_kwargs,
        source_name=source.name,
    )
