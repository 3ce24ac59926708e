"""Weights sent to a real engine; the oracle is the Hugging Face model with the same weights."""

import base64
import itertools
import json
import os
import pickle
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest
import torch
import torch.distributed as dist

from slime.engines.ports import free_ports
from slime.weights.delta import DeltaWeightUpdater
from slime.weights.disk import DiskWeightUpdater
from slime.weights.distributed import DistributedWeightUpdater
from slime.weights.engine_calls import EngineAddress
from slime.weights.equality import ExpectedChecksums
from slime.weights.errors import EnginesLeftBehind, WeightUpdateError
from slime.weights.expected import checkpoint_shapes
from slime.weights.tensor import TensorWeightUpdater, flattened_bucket
from slime.weights.updater import WeightUpdater, versions
from tests.engines.real_servers import generate, largest_difference, make_model

PROMPTS = [[5, 9, 3], list(range(2, 38))]


@pytest.fixture(scope="session")
def engines(servers):
    return [EngineAddress(url, node="here", takes_memory=True) for url in servers.engine_urls]


@pytest.fixture(scope="session")
def own_group() -> Iterator[None]:
    """A trainer has a group of its own beside the one it shares with the engines."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(params=["memory", "posted", "distributed", "disk", "delta"])
def updater(request, model_folder, own_group, tmp_path) -> Iterator[WeightUpdater]:
    options = {"expected": checkpoint_shapes(model_folder), "checksums": checksums, "timeout": 20.0}
    args = Namespace(
        hf_checkpoint=str(model_folder),
        update_weight_delta_encoding="overwrite",
        update_weight_delta_checksum="adler32",
        update_weight_disk_keep_files=False,
        custom_update_weight_post_write_path=None,
    )
    make: dict[str, Callable[[], WeightUpdater]] = {
        "memory": lambda: TensorWeightUpdater(node="here", **options),
        "posted": lambda: TensorWeightUpdater(node="elsewhere", **options),
        "distributed": lambda: DistributedWeightUpdater("gloo", **options),
        "disk": lambda: DiskWeightUpdater(args, tmp_path / "disk", **options),
        "delta": lambda: DeltaWeightUpdater(args, tmp_path / "d", tmp_path / "local", **options),
    }
    updater = make[request.param]()
    yield updater
    updater.close()


def checksums(sizes):
    return ExpectedChecksums(make_model(seed=0).config.to_dict(), sizes, device="cpu")


def weights_of(model):
    """Named tensors as a checkpoint has them: a tied output head is not among them."""
    return [(n, t) for n, t in model.state_dict().items() if n != "lm_head.weight"]


def difference_to(model, servers):
    answers = generate(servers.router_url, PROMPTS, temperature=1.0)
    pairs = zip(PROMPTS, answers, strict=True)
    return max(largest_difference(model, prompt, answer) for prompt, answer in pairs)


def test_engine_samples_from_the_new_weights_and_reports_their_version(servers, engines, updater):
    for buckets in (1, 3):
        new = make_model(seed=torch.seed() % 2**31)
        assert difference_to(new, servers) > 0.1  # the old weights, and their cached prompts
        named = weights_of(new)
        updater.update(engines, (named[i::buckets] for i in range(buckets)), version=20 + buckets)
        assert difference_to(new, servers) < 1e-5
        assert set(versions(engines).values()) == {str(20 + buckets)}
        meta_info = generate(servers.router_url, PROMPTS[:1])[0]["meta_info"]
        assert meta_info["weight_version"] == str(20 + buckets)
        assert {span["version"] for span in meta_info["weight_versions"]} == {str(20 + buckets)}


def test_what_does_not_fit_the_model_is_refused_before_it_reaches_the_engine(
    servers, engines, updater
):
    """An engine ignores an unknown name, and a wrong shape ends it."""
    good = weights_of(make_model(seed=30))
    updater.update(engines, [good], version=40)
    with pytest.raises(WeightUpdateError, match="model.norm.weight .* has"):
        updater.update(engines, [[("model.norm.weight", torch.zeros(3))]], version=41)
    with pytest.raises(WeightUpdateError, match="nonsense .not in the checkpoint"):
        updater.update(engines, [[("nonsense", torch.zeros(3))]], version=41)
    assert versions(engines) == {engines[0].url: "40"}
    assert difference_to(make_model(seed=30), servers) < 1e-5
    with pytest.raises(WeightUpdateError, match="only grow: 39 after 41"):
        updater.update(engines, [good], version=39)


def test_a_mixture_of_weights_is_marked_until_an_update_succeeds(servers, engines, updater):
    new = make_model(seed=50)
    named = weights_of(new)
    updater.update(engines, [weights_of(make_model(seed=49))], version=50)
    incomplete = [pair for pair in named if pair[0] != "model.norm.weight"]
    with pytest.raises(WeightUpdateError, match="left out .*model.norm.weight"):
        updater.update(engines, [incomplete], version=51)
    by_files = isinstance(updater, DiskWeightUpdater | DeltaWeightUpdater)
    expected = "50" if by_files else "51-incomplete"  # files that are not whole reach nobody
    assert versions(engines) == {engines[0].url: expected}
    updater.update(engines, [named], version=52)
    assert versions(engines) == {engines[0].url: "52"}
    assert difference_to(new, servers) < 1e-5


class BrokenEngine(ThreadingHTTPServer):
    """Answers like an engine until a request whose path has `breaks_at`; then 500, or nothing."""

    def __init__(self, breaks_at: str, how: str) -> None:
        super().__init__(("127.0.0.1", 0), BrokenHandler)
        self.breaks_at, self.how = breaks_at, how
        self.version = "0"
        self.address = EngineAddress(f"http://127.0.0.1:{self.server_port}")


class BrokenHandler(BaseHTTPRequestHandler):
    server: BrokenEngine

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.breaks_at in self.path:
            if self.server.how == "dies":
                self.connection.close()
                return
            self.send_response(500)
        else:
            self.send_response(200)
        if "version" in self.path:
            self.server.version = json.loads(body)["new_version"]
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"weight_version": self.server.version}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def broken_engine() -> Iterator[Callable[[str, str], BrokenEngine]]:
    started = []

    def start(breaks_at: str, how: str) -> BrokenEngine:
        server = BrokenEngine(breaks_at, how)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("how", ["dies", "refuses"])
@pytest.mark.parametrize("breaks_at", ["begin_weight", "from_tensor", "end_weight"])
def test_an_engine_that_fails_in_mid_update_is_named_and_the_others_are_whole(
    servers, engines, model_folder, broken_engine, breaks_at, how
):
    broken = broken_engine(breaks_at, how)
    updater = TensorWeightUpdater(node="here", expected=checkpoint_shapes(model_folder))
    new = make_model(seed=60)
    named = weights_of(new)
    with pytest.raises(EnginesLeftBehind) as error:
        updater.update([*engines, broken.address], [named[:3], named[3:]], version=60)
    assert list(error.value.reasons) == [broken.address.url]
    assert difference_to(new, servers) < 1e-5
    assert versions(engines) == {engines[0].url: "60"}
    assert broken.version == "60-incomplete"
    broken.breaks_at = "nothing"  # it is well again, and is caught up
    updater.update([broken.address], [named], version=60)
    assert broken.version == "60"
    updater.close()


@pytest.mark.parametrize("how", ["dies", "refuses"])
def test_a_failed_broadcast_leaves_all_behind_and_the_next_group_is_new(
    servers, engines, own_group, broken_engine, how
):
    """The healthy engine is caught up by the next update; it never serves the mixture."""
    broken = broken_engine("init_weights", how)
    updater = DistributedWeightUpdater("gloo", timeout=3.0)
    new = make_model(seed=70)
    with pytest.raises(EnginesLeftBehind) as error:
        updater.update([*engines, broken.address], [weights_of(new)], version=70)
    assert broken.address.url in error.value.reasons
    assert versions(engines) == {engines[0].url: "70-incomplete"}
    updater.update(engines, [weights_of(new)], version=70)
    assert versions(engines) == {engines[0].url: "70"}
    assert difference_to(new, servers) < 1e-5
    updater.close()


def test_an_engine_with_other_weights_than_were_sent_is_found(servers, engines, model_folder):
    class Forgetful(TensorWeightUpdater):
        def _send(self, calls, bucket):
            super()._send(calls, [pair for pair in bucket if "q_proj" not in pair[0]])

    updater = Forgetful(node="here", checksums=checksums)
    with pytest.raises(EnginesLeftBehind, match="other weights than were sent: .*qkv_proj"):
        updater.update(engines, [weights_of(make_model(seed=80))], version=80)
    assert versions(engines) == {engines[0].url: "80-incomplete"}
    updater.close()


def test_an_engine_that_does_not_answer_is_named(servers, engines):
    (port,) = free_ports(1)
    dead = EngineAddress(f"http://127.0.0.1:{port}")
    updater = TensorWeightUpdater(timeout=5)
    with pytest.raises(EnginesLeftBehind, match=f"engine {dead.url} did not answer"):
        updater.update([*engines, dead], [weights_of(make_model(seed=0))], version=90)
    updater.close()


@pytest.mark.parametrize("node", ["here", "elsewhere"])
def test_memory_is_bounded_by_the_bucket_and_not_by_the_model(broken_engine, node):
    """25 buckets of 8 MB, made one after the other; the engine's side is not measured."""
    bucket_bytes, count = 8 * 1024**2, 25
    address = broken_engine("nothing", "").address
    engine = EngineAddress(address.url, node="here", takes_memory=True)
    process = psutil.Process()

    def made(sizes: list[int]) -> Iterator[list[tuple[str, torch.Tensor]]]:
        for number in range(count):
            yield [(f"t{number}", torch.full((bucket_bytes // 4,), float(number)))]
            sizes.append(process.memory_info().rss)

    updater = TensorWeightUpdater(node=node)
    updater.update([engine], itertools.islice(made([]), 1), version=0)  # imports and connections
    base, sizes = process.memory_info().rss, []
    updater.update([engine], made(sizes), version=1)
    updater.close()
    # The bucket, its copy, its pickle, base64 of that, and the request's body.
    assert max(sizes) - base < 8 * bucket_bytes < count * bucket_bytes / 3


def test_a_bucket_holds_the_bytes_of_every_tensor():
    named = [
        ("a", torch.arange(6.0).reshape(2, 3).T),  # not contiguous
        ("b", torch.tensor([1.5, -2.0], dtype=torch.bfloat16)),
        ("c", torch.tensor(7, dtype=torch.int64)),
    ]
    content = pickle.loads(base64.b64decode(flattened_bucket(named)))
    flat = content["flattened_tensor"]
    for (name, tensor), entry in zip(named, content["metadata"], strict=True):
        part = flat[entry.start_idx : entry.end_idx].clone().view(entry.dtype).reshape(entry.shape)
        assert entry.name == name
        assert part.dtype == tensor.dtype
        assert torch.equal(part, tensor)
