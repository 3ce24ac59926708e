"""Weights sent to a real engine; the oracle is the Hugging Face model with the same weights."""

import base64
import pickle

import pytest
import torch

from slime.engines.ports import free_ports
from slime.weights.errors import WeightUpdateError
from slime.weights.expected import checkpoint_shapes
from slime.weights.tensor import TensorWeightUpdater, flattened_bucket
from tests.engines.real_servers import generate, largest_difference, make_model

PROMPTS = [[5, 9, 3], list(range(2, 38))]


@pytest.fixture
def updater(servers, model_folder):
    updater = TensorWeightUpdater(servers.engine_urls, expected=checkpoint_shapes(model_folder))
    yield updater
    updater.close()


def weights_of(model):
    """Named tensors as a checkpoint has them: a tied output head is not among them."""
    return [(n, t) for n, t in model.state_dict().items() if n != "lm_head.weight"]


def difference_to(model, servers):
    answers = generate(servers.router_url, PROMPTS, temperature=1.0)
    pairs = zip(PROMPTS, answers, strict=True)
    return max(largest_difference(model, prompt, answer) for prompt, answer in pairs)


@pytest.mark.parametrize("buckets", [1, 3])
def test_engine_samples_from_the_new_weights_and_reports_their_version(servers, updater, buckets):
    new = make_model(seed=10 + buckets)
    assert difference_to(new, servers) > 0.1  # the old weights, and their cached prompts
    named = weights_of(new)
    updater.update((named[i::buckets] for i in range(buckets)), version=20 + buckets)
    assert difference_to(new, servers) < 1e-5
    assert updater.versions() == [str(20 + buckets)]
    meta_info = generate(servers.router_url, PROMPTS[:1])[0]["meta_info"]
    assert meta_info["weight_version"] == str(20 + buckets)
    assert {span["version"] for span in meta_info["weight_versions"]} == {str(20 + buckets)}


def test_what_does_not_fit_the_model_is_refused_before_it_reaches_the_engine(servers, updater):
    """An engine ignores an unknown name, and a wrong shape ends it."""
    good = weights_of(make_model(seed=30))
    updater.update([good], version=40)
    with pytest.raises(WeightUpdateError, match="model.norm.weight .* has"):
        updater.update([[("model.norm.weight", torch.zeros(3))]], version=41)
    with pytest.raises(WeightUpdateError, match="nonsense .not in the checkpoint"):
        updater.update([[("nonsense", torch.zeros(3))]], version=41)
    assert updater.versions() == ["40"]
    assert difference_to(make_model(seed=30), servers) < 1e-5


def test_a_mixture_of_weights_is_marked_until_an_update_succeeds(servers, updater):
    new = make_model(seed=50)
    named = weights_of(new)
    with pytest.raises(WeightUpdateError, match="left out .*model.norm.weight"):
        updater.update([[pair for pair in named if pair[0] != "model.norm.weight"]], version=51)
    assert updater.versions() == ["51-incomplete"]
    updater.update([named], version=52)
    assert updater.versions() == ["52"]
    assert difference_to(new, servers) < 1e-5


def test_an_engine_that_does_not_answer_is_named(servers):
    (port,) = free_ports(1)
    dead = f"http://127.0.0.1:{port}"
    updater = TensorWeightUpdater([servers.engine_urls[0], dead], timeout=5)
    with pytest.raises(WeightUpdateError, match=f"engine {dead} did not answer"):
        updater.update([weights_of(make_model(seed=0))], version=60)
    updater.close()


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
