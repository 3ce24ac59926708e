"""An engine of two ranks on a CPU: log-probs and weight updates."""

import contextlib
import os

import psutil
import pytest
import torch.distributed as dist

from slime.weights.distributed import DistributedWeightUpdater
from slime.weights.engine_calls import EngineAddress
from slime.weights.equality import ExpectedChecksums
from slime.weights.errors import EnginesLeftBehind
from slime.weights.tensor import TensorWeightUpdater
from tests.engines.real_servers import (
    generate,
    largest_difference,
    make_args,
    make_model,
    running,
    save_model,
)

PROMPTS = [[5, 9, 3], list(range(2, 38))]


@contextlib.contextmanager
def dist_of_one():
    """A trainer has a group of its own beside the one it shares with the engines."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def difference_to(model, url):
    pairs = zip(PROMPTS, generate(url, PROMPTS), strict=True)
    return max(largest_difference(model, prompt, answer) for prompt, answer in pairs)


def checksums(sizes):
    return ExpectedChecksums(make_model(seed=0).config.to_dict(), sizes, device="cpu")


class Wrong(TensorWeightUpdater):
    """Sends a matrix that differs in the half of the second rank."""

    def _send(self, calls, bucket):
        changed = {"model.layers.1.self_attn.o_proj.weight"}
        bucket = [(n, t.clone() if n in changed else t) for n, t in bucket]
        dict(bucket)[changed.pop()][0, -1] += 1e-3
        super()._send(calls, bucket)


def test_two_ranks_equal_the_hugging_face_model_before_and_after_an_update(tmp_path):
    folder = save_model(tmp_path / "model")
    flags = ("--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2")
    with running(make_args(folder, tmp_path, *flags)) as servers:
        assert len(servers.engine_urls) == 1
        assert difference_to(make_model(seed=0), servers.router_url) < 1e-5
        listening = {
            connection.laddr.ip
            for process in psutil.Process().children(recursive=True)
            for connection in process.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}

        engines = [EngineAddress(servers.engine_urls[0], num_gpus=2, takes_memory=True)]
        with dist_of_one():
            for version, updater in enumerate(
                [TensorWeightUpdater(checksums=checksums),
                 TensorWeightUpdater(node="other", checksums=checksums),
                 DistributedWeightUpdater("gloo", timeout=30, checksums=checksums)], start=1
            ):  # fmt: skip
                new = make_model(seed=2 + version)
                named = [(n, t) for n, t in new.state_dict().items() if n != "lm_head.weight"]
                updater.update(engines, [named], version)
                assert difference_to(new, servers.router_url) < 1e-5
                updater.close()
        updater = Wrong(checksums=checksums)
        with pytest.raises(EnginesLeftBehind, match=r"1\.self_attn\.o_proj\.weight \(rank 1\)"):
            updater.update(engines, [named], version=9)
        updater.close()
