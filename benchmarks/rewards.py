"""Grading of mathematical answers against math-verify: time per answer, and who is right.

    ./bazelw run //benchmarks:rewards

Both grade the same pairs in one run, math-verify with its defaults in this process. Its grammars
are built, and the workers started, before the clock.
"""

import argparse
import os
import random
import time
from collections.abc import Callable
from statistics import fmean, median

from math_verify import LatexExtractionConfig, parse, verify

from benchmarks.answer_pairs import Pair, generated, handmade
from slime.rewards.comparison import compare
from slime.rewards.math_answers import grade_answer
from slime.rewards.symbolic_pool import is_equal

_EXTRACTION = [LatexExtractionConfig()]


def grade_by_math_verify(given: str, truth: str) -> bool:
    pair = [parse(f"${text}$", _EXTRACTION) for text in (truth, given)]
    return bool(verify(pair[0], pair[1]))


def processor_seconds() -> float:
    """Of this process and its workers; unlike wall time it does not grow on a busy machine."""
    total = time.process_time()
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            children = file.read().split()
        for child in children:
            with open(f"/proc/{child}/stat", encoding="ascii") as file:
                fields = file.read().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def measure(grade: Callable[[str, str], bool], pairs: list[Pair]) -> tuple[list[float], list[bool]]:
    """Seconds and verdict of each pair; a verdict is computed once and never remembered."""
    is_equal.cache_clear()
    seconds, verdicts = [], []
    for given, truth, _ in pairs:
        started = time.perf_counter()
        verdicts.append(grade(given, truth))
        seconds.append(time.perf_counter() - started)
    return seconds, verdicts


def report(name: str, pairs: list[Pair], graders: dict[str, Callable[[str, str], bool]]) -> None:
    undecided = sum(compare(given, truth) is None for given, truth, _ in pairs)
    print(f"\n## {name}: {len(pairs)} pairs, {undecided} need computer algebra")
    means, answers = {}, {}
    for grader, grade in graders.items():
        grade("\\frac{1}{2}+x^2", "0.5+\\int_0^1 x dx")
        started = processor_seconds()
        seconds, verdicts = measure(grade, pairs)
        means[grader] = (processor_seconds() - started) / len(pairs)
        answers[grader] = verdicts
        wrong = sum(v != pair[2] for v, pair in zip(verdicts, pairs, strict=True))
        print(
            f"{grader:12s} processor time {means[grader] * 1e3:7.3f} ms; wall time: mean "
            f"{fmean(seconds) * 1e3:7.3f} ms, median {median(seconds) * 1e3:7.3f} ms, slowest "
            f"{max(seconds) * 1e3:7.1f} ms; wrong {wrong}"
        )
    print(f"ratio of processor times: {means['math-verify'] / means['slime']:.1f}")
    for pair, ours, theirs in zip(pairs, answers["slime"], answers["math-verify"], strict=True):
        if ours != theirs:
            right = "slime" if ours == pair[2] else "math-verify"
            print(f"  differ: {pair[0]} | {pair[1]}: {right} is right")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generated", type=int, default=320, help="pairs made by rule")
    args = parser.parse_args()
    graders: dict[str, Callable[[str, str], bool]] = {
        "slime": grade_answer,
        "math-verify": grade_by_math_verify,
    }
    pairs = handmade() + generated(0, args.generated)
    random.Random(0).shuffle(pairs)
    report("mixed set", pairs, graders)
    report("by rule only", generated(1, args.generated), graders)


if __name__ == "__main__":
    main()
