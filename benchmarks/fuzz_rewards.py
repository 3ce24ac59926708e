"""Fuzzed pairs of answers through the whole grader: none may raise, and none may take long.

    ./bazelw run //benchmarks:fuzz_rewards -- --pairs 100000

Three in ten pairs are random tokens, three short arithmetic, the rest real answers with a few
characters changed, and a few attacks. Prints how many were equal, decided exactly, sent to computer
algebra, and ended there by a limit.
"""

import argparse
import random
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from benchmarks.answer_pairs import HOSTILE, handmade
from slime.rewards.comparison import compare
from slime.rewards.math_answers import grade_answer_verl
from slime.rewards.symbolic_pool import is_equal, shared_pool

_COMMANDS = r"""\frac|\sqrt|\pm|\cup|\in|\infty|\text{|\left(|\right)|\int|\sum|\lim|\to
\begin{pmatrix}|\end{pmatrix}|\\|\log_|\sin|\le|\boxed{|\{|\}|10|100|{1}{2}|√|²"""
_TOKENS = [*"0123456789xyzei+-*/^(){}[],.;:|=<>!_ &%$'\n\\", *re.split(r"[|\n]", _COMMANDS)]
_ARITHMETIC = [*"0123456789xe+-*/^(),!", "\\pi", "\\sqrt{2}", "10^{99}", "\\frac{1}{7}", "|x|"]
_PAIRS = handmade()
_HOSTILE_SHARE = 0.001  # each may take its whole time limit


def fuzzed(rng: random.Random) -> tuple[str, str]:
    if (kind := rng.random()) < 0.6:
        tokens = _TOKENS if kind < 0.3 else _ARITHMETIC
        return _random_text(rng, tokens), _random_text(rng, tokens)
    if rng.random() < _HOSTILE_SHARE:
        return _changed(rng, rng.choice(HOSTILE)), "5/7"
    given, truth, _ = rng.choice(_PAIRS)
    return _changed(rng, given), truth if rng.random() < 0.5 else _changed(rng, truth)


def _random_text(rng: random.Random, tokens: list[str]) -> str:
    return "".join(rng.choices(tokens, k=rng.randint(0, 25 if tokens is _TOKENS else 7)))


def _changed(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 3)):
        place = rng.randint(0, len(text))
        text = text[:place] + rng.choice(_TOKENS) + text[place + rng.randint(0, 2) :]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--algebra-share", type=float, default=0.15, help="of the undecided pairs, for time's sake"
    )
    args = parser.parse_args()
    rng = random.Random(args.seed)
    counts: Counter[str] = Counter()
    slowest = 0.0
    with ThreadPoolExecutor(8) as threads:
        for start in range(0, args.pairs, 1000):
            waiting = []
            for _ in range(min(1000, args.pairs - start)):
                given, truth = fuzzed(rng)
                started = time.thread_time()
                verdict = compare(given, truth)
                slowest = max(slowest, time.thread_time() - started)
                if verdict is None and rng.random() < args.algebra_share:
                    waiting.append(threads.submit(is_equal, given, truth))
                counts[f"exactly {verdict}"] += 1
                if verdict is not None:
                    counts["boxed"] += grade_answer_verl(f"\\boxed{{{given}}}", truth)
            for future in waiting:
                counts[f"algebra {future.result()}"] += 1
    print(dict(sorted(counts.items())))
    pool = shared_pool()
    print(f"slowest exact comparison {slowest * 1e3:.1f} ms of processor time")
    print(f"asked of computer algebra {pool.num_asked}, ended by a limit {pool.num_ended}")


if __name__ == "__main__":
    main()
