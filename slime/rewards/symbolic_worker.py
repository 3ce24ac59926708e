"""The process that decides by computer algebra what exact comparison left open.

    python -m slime.rewards.symbolic_worker CPU_SECONDS MEMORY_BYTES

One JSON line per pair comes in, one JSON line per verdict goes out, after a first line that says
the process is ready. The kernel ends the process when a pair takes more than CPU_SECONDS of its
processor time or MEMORY_BYTES beyond what the empty process has. The pairs are read as LaTeX (a
grammar), never as Python.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable

from slime.rewards.notation import plain

_LAST_PAIR = 2000  # the algebra's caches grow: then a fresh process takes over


def main() -> None:
    """Answer pairs until the input ends."""
    cpu_seconds, memory_bytes = float(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a run is ended by its main process
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1, encoding="utf-8") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries print; not among the answers
        are_equal = _comparison()
        are_equal("\\frac{1}{2}", "0.5")  # grammars are built on first use
        _limit_memory(memory_bytes)
        answers.write("true\n")
        for _, line in zip(range(_LAST_PAIR), sys.stdin, strict=False):
            given, truth = json.loads(line)
            # SIGPROF is left at its default, which ends the process: also within a C loop.
            signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
            try:
                verdict = are_equal(given, truth)
            except MemoryError:
                return
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            answers.write(json.dumps(verdict) + "\n")


def _limit_memory(memory_bytes: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _comparison() -> Callable[[str, str], bool]:
    """The comparison of math-verify, which takes a second to import: only this process needs it."""
    from math_verify import LatexExtractionConfig, parse, verify

    extraction = [LatexExtractionConfig()]

    def are_equal(given: str, truth: str) -> bool:
        """Compare as written, then in this room's notation, which takes words for functions."""
        pairs = dict.fromkeys(
            [(given.replace("$", ""), truth.replace("$", "")), (plain(given), plain(truth))]
        )
        for pair in pairs:
            try:
                left, right = (
                    parse(f"${_product_signs(text)}$", extraction, parsing_timeout=None)
                    for text in pair
                )
                if verify(
                    right,
                    left,
                    float_rounding=12,
                    allow_set_relation_comp=True,
                    timeout_seconds=None,
                ):
                    return True
            except MemoryError:
                raise
            except Exception:  # whatever the algebra trips over, it has not shown equality
                continue
        return False

    return are_equal


def _product_signs(text: str) -> str:
    return text.replace("**", "^").replace("*", "\\cdot ")


if __name__ == "__main__":
    main()
