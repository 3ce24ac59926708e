"""A rollout on its way to the train ranks: slime's arrays against lists of numbers.

    ./bazelw run //benchmarks:train_batch

Both take the same samples to the same tensors in a rank, a Ray actor, through Ray's object store.
The baseline puts each sample's tokens, mask and log-probs there as the lists that they are. Seconds
are from the samples to the tensors, by the clock and of the processor; memory is what all processes
hold at the peak (PSS, sampled 20 times a second) beyond what they held before. Each path runs in
processes of its own. The ranks return sums, which must agree.
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
from typing import Any

from benchmarks.run_memory import RunMemory

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


def make_samples(count: int, length: int) -> list[Any]:
    """Samples of `length` tokens on average, a quarter of it prompt, with log-probs and masks."""
    from slime.samples.sample import Sample

    rng = random.Random(0)
    samples = []
    for index in range(count):
        size = rng.randint(length // 2, length * 3 // 2)
        response = size * 3 // 4
        sample = Sample(index=index, rollout_id=index, group_index=index // 8, reward=1.0)
        sample.tokens = [rng.randrange(150_000) for _ in range(size)]
        sample.response_length = response
        sample.rollout_log_probs = [-rng.random() for _ in range(response)]
        sample.loss_mask = [1] * response
        samples.append(sample)
    return samples


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
    """In a process of its own: say ready, wait for a line, take the path, say what it took."""
    import ray

    ray.init(
        address="local",
        num_cpus=RANKS,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=count * length * 32,
    )
    actor = ray.remote(Rank)
    ranks = [actor.options(num_cpus=0).remote() for _ in range(RANKS)]
    ray.get([rank.warm_up.remote() for rank in ranks])
    take(path, make_samples(16, 64), ranks)  # imports are not what is measured
    samples = make_samples(count, length)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(take(path, samples, ranks)), flush=True)


def take(path: str, samples: list[Any], ranks: list[Any]) -> tuple[float, float, list[float]]:
    """Seconds by the clock, of processor time, and the sums that the ranks return."""
    import ray

    wall, processor = time.perf_counter(), time.process_time()
    refs = (send_lists if path == "lists" else send_arrays)(samples)
    method = f"receive_{path}"
    answers = ray.get([getattr(rank, method).remote(refs, i) for i, rank in enumerate(ranks)])
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    took, *sums = (sum(column) for column in zip(*answers, strict=True))
    return wall, processor + took, sums


def run_path(path: str, count: int, length: int) -> tuple[float, float, int, list[float]]:
    """Seconds by the clock and of processor time, bytes at the peak, sums."""
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
    while child.stdout.readline().strip() != "ready":
        if child.poll() is not None:
            raise SystemExit(f"the {path} ended with {child.returncode}")
    text = f"{MARKER}={marker}"
    with RunMemory(text, interval=0.2) as before:
        time.sleep(1.0)
    with RunMemory(text, interval=0.05) as during:
        child.stdin.write("go\n")
        child.stdin.flush()
        wall, processor, sums = json.loads(child.stdout.readline())
    child.communicate()
    return wall, processor, during.peak_bytes - before.peak_bytes, sums


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--path", choices=("lists", "arrays"), help="for the processes it starts")
    options = parser.parse_args()
    if options.path:
        measure(options.path, options.samples, options.length)
        return
    print("| path | seconds | processor time (s) | memory (GB) |\n|---|---|---|---|")
    results = {}
    for path in ("lists", "arrays"):
        wall, processor, peak, sums = run_path(path, options.samples, options.length)
        results[path] = (wall, processor, peak, sums)
        print(f"| {path} | {wall:.2f} | {processor:.2f} | {peak / 1e9:.2f} |", flush=True)
    lists, arrays = results["lists"], results["arrays"]
    for one, other in zip(lists[3], arrays[3], strict=True):
        if abs(one - other) > 1e-6 * abs(one):
            raise SystemExit(f"the paths disagree: {lists[3]} and {arrays[3]}")
    clock, processor, memory = (lists[i] / arrays[i] for i in range(3))
    print(
        f"{clock:.1f} times as fast ({processor:.1f} in processor time), 1/{memory:.1f} of memory"
    )


if __name__ == "__main__":
    main()
