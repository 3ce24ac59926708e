"""The error type for a user's mistakes: it lists every problem at once, each with its remedy."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_LONGEST_VALUE = 120  # characters of a value that are shown


def option(dest: str) -> str:
    """`rollout_batch_size` -> `--rollout-batch-size`."""
    return "--" + dest.replace("_", "-")


@dataclass(frozen=True)
class Problem:
    """One mistake.

    Attributes:
        option: The option as the user writes it (`--rollout-batch-size`), or another place
            (`run.yaml:3`).
        value: What was given; None when nothing was.
        message: What is wrong.
        remedy: What to do about it; may be empty.
        where: The file and line that set the option; empty for the command line.
    """

    option: str
    value: Any
    message: str
    remedy: str = ""
    where: str = ""

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {_shorten(self.value)}"
        where = f" ({self.where})" if self.where else ""
        remedy = f"\n     -> {self.remedy}" if self.remedy else ""
        return f"{self.option}{value}{where}: {self.message}{remedy}"


class ConfigError(ValueError):
    """The configuration is wrong: `problems` holds all that was found, `str()` is the message for
    the user.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__(render_problems(self.problems))

    def __reduce__(self) -> tuple[type["ConfigError"], tuple[list[Problem]]]:
        # The default would hand the message to __init__; a ConfigError must survive the way between
        # processes.
        return (ConfigError, (self.problems,))


def render_problems(problems: Sequence[Problem]) -> str:
    """One readable message: every problem numbered, with its option, value and remedy."""
    if len(problems) == 1:
        return f"the configuration is wrong:\n  1. {problems[0]}"
    lines = [f"the configuration is wrong in {len(problems)} places:"]
    lines += [f"  {number}. {problem}" for number, problem in enumerate(problems, start=1)]
    return "\n".join(lines)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X?` when a known name is close to `name`, else an empty string."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {matches[0]}?" if matches else ""


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) and value else repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
