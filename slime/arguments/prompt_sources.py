"""The syntax of `--prompt-data`: one path, or several named sources with weights."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from slime.arguments.errors import Problem

OPTION = "--prompt-data"
_SOURCE = r"[A-Za-z_][\w.-]*(?::[^=,/]*)?="
_FIRST = re.compile(_SOURCE)
_NEXT = re.compile(rf",\s*(?={_SOURCE})")


@dataclass(frozen=True)
class PromptSource:
    """One file of prompts.

    Attributes:
        path: Its path, maybe with a slice.
        name: Goes into the metadata of its samples as `source_name`; None for a path alone.
        weight: Its share of the prompts that are served, as text; None: as many as it has.
    """

    path: str
    name: str | None = None
    weight: str | None = None

    @property
    def option(self) -> str:
        """What messages call it."""
        return OPTION if self.name is None else f"{OPTION} {self.name}"


def parse_prompt_sources(value: str) -> list[PromptSource]:
    """The sources of `--prompt-data`; nothing is judged.

    `math:3=math.jsonl,code:1=code.jsonl@[:100]` is two sources: a value of several begins with
    NAME= or NAME:WEIGHT=, and so does every further source after its comma. Any other value is one
    path. A path that would be taken for a source is written `./a=b.jsonl`.
    """
    if _FIRST.match(value) is None:
        return [PromptSource(value)]
    sources = []
    for text in _NEXT.split(value):
        head, _, path = text.partition("=")
        name, colon, weight = head.partition(":")
        sources.append(PromptSource(path, name, weight if colon else None))
    return sources


def render_prompt_sources(sources: Sequence[PromptSource]) -> str:
    """The inverse of `parse_prompt_sources`."""
    if [source.name for source in sources] == [None]:
        return sources[0].path
    return ",".join(
        f"{source.name}{'' if source.weight is None else ':' + source.weight}={source.path}"
        for source in sources
    )


def with_paths(value: str, paths: Mapping[str, str]) -> str:
    """The same sources at the paths that `paths` gives for theirs."""
    sources = parse_prompt_sources(value)
    return render_prompt_sources(
        [replace(source, path=paths.get(source.path, source.path)) for source in sources]
    )


def weights_of(sources: Sequence[PromptSource], sizes: Sequence[int]) -> list[float]:
    """The weights; without any, the number of prompts of each."""
    given = [source.weight for source in sources]
    return [float(weight) for weight in given if weight is not None] or [float(n) for n in sizes]


def quotas(weights: Sequence[float], num_prompts: int) -> list[int]:
    """`num_prompts` divided by weight into whole numbers (largest remainder)."""
    total = sum(weights) or 1.0
    shares = [num_prompts * weight / total for weight in weights]
    result = [math.floor(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (result[i] - shares[i], i))
    for i in by_remainder[: num_prompts - sum(result)]:
        result[i] += 1
    return result


def check_prompt_sources(value: str) -> Iterator[Problem]:
    """Names that are used twice, weights that are none."""
    sources = parse_prompt_sources(value)
    names = [source.name for source in sources]
    for name in sorted({str(name) for name in names if names.count(name) > 1}):
        yield Problem(f"{OPTION} {name}", value, "used twice", "give each source its own name")
    for source in sources:
        if not source.path:
            yield Problem(
                source.option, value, "has no path", "write NAME=PATH or NAME:WEIGHT=PATH"
            )
        if source.weight is not None and not _is_weight(source.weight):
            yield Problem(source.option, source.weight, "is no weight", "give a number above 0")
    bare = [source.option for source in sources if source.weight is None]
    if 0 < len(bare) < len(sources):
        message = f"has no weight, as {', '.join(bare)}" if len(bare) > 1 else "has no weight"
        yield Problem(bare[0], value, message, "give every source a weight, or none")


def check_shares(value: str, sizes: Sequence[int]) -> Iterator[Problem]:
    """Every source is served at least once in an epoch (all prompts of all sources together)."""
    sources = parse_prompt_sources(value)
    shares = quotas(weights_of(sources, sizes), sum(sizes))
    for source, share in zip(sources, shares, strict=True):
        if share == 0:
            message = f"gets none of the {sum(sizes)} prompts of an epoch"
            yield Problem(source.option, source.weight, message, "give a larger weight")


def _is_weight(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
