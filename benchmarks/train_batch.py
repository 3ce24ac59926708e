"""A rollout on its way to the train ranks: slime's arrays against lists of numbers.

    ./bazelw run //benchmarks:train_batch

All take the same samples to the same tensors in a rank, a Ray actor, through Ray's object store.

- lists, the baseline: the samples hold lists, and are put into the store as such;
- arrays: the samples are as slime's generation makes them;
- mixed: as arrays, but the samples hold lists, because functions of a user read them or made them.

Seconds are from the samples to the tensors, by the clock and of the processor; memory is what all
processes hold at the peak (PSS, sampled 20 times a second) beyond what they held before. The
samples are made before, by putting an engine's parsed answers on them: that has columns of its own.
Each path runs in processes of its own. The ranks return sums, which must agree.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
import uuid
from argparse import Namespace
from array import array
from typing import Any

from benchmarks.run_memory import RunMemory

PATHS = ("lists", "mixed", "arrays")
RANKS = 1  # more of them share the work of either path alike
MARKER = "SLIME_BENCHMARK"


class Rank:
    """A train rank, as far as its data are concerned."""

    def warm_up(self) -> None:
        import torch

        torch.set_num_threads(1)
        import slime.trainer.rollout_tensors  # noqa: F401 - seconds, which are not measured

    def receive_lists(self, refs: list[Any], rank: int) -> list[float]:
        import ray
        import torch

        started = time.process_time()
        data = ray.get(refs[rank])
        tokens = [torch.tensor(one, dtype=torch.long) for one in data["tokens"]]
        masks = [torch.tensor(one, dtype=torch.float32) for one in data["loss_masks"]]
        log_probs = [torch.tensor(one, dtype=torch.float32) for one in data["rollout_log_probs"]]
        took = time.process_time() - started
        return [took, *(self._sum(values) for values in (tokens, masks, log_probs))]

    def receive_arrays(self, refs: list[Any], rank: int) -> list[float]:
        import torch

        from slime.cluster.rollout_data import process_rollout_data
        from slime.trainer.rollout_tensors import to_tensors

        started = time.process_time()
        data = process_rollout_data(Namespace(), refs, rank, RANKS)
        tokens = to_tensors(data["tokens"], torch.long, "cpu")
        masks = to_tensors(data["loss_masks"], torch.float32, "cpu")
        log_probs = to_tensors(data["rollout_log_probs"], torch.float32, "cpu")
        took = time.process_time() - started
        return [took, *(self._sum(values) for values in (tokens, masks, log_probs))]

    def _sum(self, tensors: list[Any]) -> float:
        """Of the first and the last element of each: enough to tell, and quickly computed."""
        return sum(float(tensor[0]) + float(tensor[-1]) for tensor in tensors)


def make_samples(path: str, count: int, length: int) -> tuple[list[Any], float]:
    """Samples of `length` tokens on average, a quarter of it prompt, with log-probs and masks, and
    the processor time in which the engine's answers were put on them."""
    from slime.samples.sample import Sample

    rng, took = random.Random(0), 0.0
    samples = []
    for index in range(count):
        size = rng.randint(length // 2, length * 3 // 2)
        response = size * 3 // 4
        prompt = [rng.randrange(150_000) for _ in range(size - response)]
        log_probs = array("f", (-rng.random() for _ in range(response)))  # an engine's precision
        answer = [[value, rng.randrange(150_000), None] for value in log_probs]
        sample = Sample(index=index, rollout_id=index, group_index=index // 8, reward=1.0)
        started = time.process_time()
        sample.tokens = prompt
        if path == "arrays":
            sample.append_response_tokens(meta_info={"output_token_logprobs": answer})
        else:
            sample.tokens = prompt + [entry[1] for entry in answer]
            sample.rollout_log_probs = [entry[0] for entry in answer]
            sample.loss_mask = [1] * response
            sample.response_length = response
        took += time.process_time() - started
        samples.append(sample)
    return samples, took


def send_lists(samples: list[Any]) -> list[Any]:
    import ray

    refs = []
    for rank in range(RANKS):
        part = samples[rank::RANKS]
        data = {
            "tokens": [sample.tokens for sample in part],
            "loss_masks": [sample.loss_mask for sample in part],
            "rollout_log_probs": [sample.rollout_log_probs for sample in part],
            "rewards": [sample.reward for sample in part],
        }
        refs.append(ray.put(data))
    return refs


def send_arrays(samples: list[Any]) -> list[Any]:
    import ray

    from slime.data.train_batch import convert_samples_to_train_data, split_by_dp

    rewards = [sample.reward for sample in samples]
    args = Namespace(
        use_dynamic_batch_size=True,
        max_tokens_per_gpu=32768,
        micro_batch_size=1,
        balance_data=True,
        balance_by_flops=False,
        global_batch_size=None,
    )
    data = convert_samples_to_train_data(args, samples, rewards, rewards)
    parts = split_by_dp(args, data, {"dp_size": RANKS})
    del data
    return [ray.put(parts.pop(0)) for _ in range(RANKS)]


def measure(path: str, count: int, length: int) -> None:
    """In a process of its own: say ready, make the samples, take the path, say what it took; each
    when a line comes."""
    import ray

    ray.init(
        address="local",
        num_cpus=RANKS,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=max(count * length * 32, 2**27),
    )
    actor = ray.remote(Rank)
    ranks = [actor.options(num_cpus=0).remote() for _ in range(RANKS)]
    ray.get([rank.warm_up.remote() for rank in ranks])
    take(path, make_samples(path, 16, 64)[0], ranks)  # imports are not what is measured
    print("ready", flush=True)
    sys.stdin.readline()
    samples, took = make_samples(path, count, length)
    print("made", flush=True)
    sys.stdin.readline()
    print(json.dumps([took, *take(path, samples, ranks)]), flush=True)


def take(path: str, samples: list[Any], ranks: list[Any]) -> tuple[float, float, list[float]]:
    """Seconds by the clock, of processor time, and the sums that the ranks return."""
    import ray

    wall, processor = time.perf_counter(), time.process_time()
    refs = (send_lists if path == "lists" else send_arrays)(samples)
    method = "receive_lists" if path == "lists" else "receive_arrays"
    answers = ray.get([getattr(rank, method).remote(refs, i) for i, rank in enumerate(ranks)])
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    took, *sums = (sum(column) for column in zip(*answers, strict=True))
    return wall, processor + took, sums


def run_path(path: str, count: int, length: int) -> tuple[list[float], list[float]]:
    """The columns of the table, and the sums."""
    marker = uuid.uuid4().hex
    options = ["--path", path, "--samples", str(count), "--length", str(length)]
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.train_batch", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARKER: marker, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdin and child.stdout
    held = []
    for word in ("ready", "made"):
        while child.stdout.readline().strip() != word:
            if child.poll() is not None:
                raise SystemExit(f"the {path} ended with {child.returncode}")
        with RunMemory(f"{MARKER}={marker}", interval=0.2) as memory:
            time.sleep(2.0)
        held.append(memory.peak_bytes)
        with RunMemory(f"{MARKER}={marker}", interval=0.05) as during:
            child.stdin.write("go\n")
            child.stdin.flush()
            answer = child.stdout.readline() if word == "made" else ""
    making, wall, processor, sums = json.loads(answer)
    child.communicate()
    before, made = held
    gigabytes = [(during.peak_bytes - made) / 1e9, (made - before) / 1e9]
    return [wall, processor, *gigabytes, making], sums


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--path", choices=PATHS, help="for the processes it starts")
    options = parser.parse_args()
    if options.path:
        measure(options.path, options.samples, options.length)
        return
    print("| path | seconds | processor time (s) | memory (GB) | samples (GB) | making them (s) |")
    print("|---|---|---|---|---|---|")
    results = {}
    for path in PATHS:
        row, sums = results[path] = run_path(path, options.samples, options.length)
        print(f"| {path} | {' | '.join(f'{number:.2f}' for number in row)} |", flush=True)
        for one, other in zip(results["lists"][1], sums, strict=True):
            if abs(one - other) > 1e-6 * abs(one):
                raise SystemExit(f"the paths disagree: {results['lists'][1]} and {sums}")
    lists = results["lists"][0]
    for path in PATHS[1:]:
        clock, processor, memory, samples = (lists[i] / results[path][0][i] for i in range(4))
        print(
            f"{path}: {clock:.1f} times as fast ({processor:.1f} in processor time), "
            f"1/{memory:.1f} of memory, samples 1/{samples:.1f}"
        )


if __name__ == "__main__":
    main()
