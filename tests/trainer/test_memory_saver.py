"""Order of offloading; DeepEP's buffers outside of it; the same results with and without."""

from __future__ import annotations

import contextlib
import sys
import types

import pytest
import torch

from slime.trainer.memory_saver import MemorySaver, TorchMemorySaver
from slime.trainer.regions import GRADIENTS, OPTIMIZER, REGIONS, WEIGHTS


def test_the_order_of_calls_is_checked():
    memory = MemorySaver()
    with memory.region(WEIGHTS), pytest.raises(RuntimeError, match="being filled"):
        memory.pause(OPTIMIZER)
    memory.pause(OPTIMIZER, GRADIENTS)
    memory.needs(WEIGHTS)
    with pytest.raises(RuntimeError, match="memory of gradients is paused"):
        memory.needs(WEIGHTS, GRADIENTS)
    with pytest.raises(RuntimeError, match="cannot pause optimizer: it is paused already"):
        memory.pause(WEIGHTS, OPTIMIZER)
    with pytest.raises(RuntimeError, match="cannot resume weights: it is not paused"):
        memory.resume(OPTIMIZER, WEIGHTS)
    with pytest.raises(RuntimeError, match="is paused"), memory.region(OPTIMIZER):
        pass
    memory.resume(GRADIENTS, OPTIMIZER)
    # what was refused has changed nothing
    steps = ["pause optimizer", "pause gradients", "resume gradients", "resume optimizer"]
    assert memory.calls == steps and not memory.paused


@pytest.fixture
def library(monkeypatch):
    """A stand-in for the package, which needs a GPU: records what is asked of it."""

    class Library:
        interesting = False

        def tms_get_interesting_region(self):
            return self.interesting

        def tms_set_interesting_region(self, value):
            self.interesting = value

    library = Library()
    library.calls = []

    @contextlib.contextmanager
    def region(tag, enable_cpu_backup):
        library.calls.append(("region", tag, enable_cpu_backup))
        yield

    wrapper = types.SimpleNamespace(cdll=library)
    saver = types.SimpleNamespace(
        _impl=types.SimpleNamespace(_binary_wrapper=wrapper),
        region=region,
        pause=lambda tag: library.calls.append(("pause", tag)),
        resume=lambda tag: library.calls.append(("resume", tag)),
    )
    library.saver = saver
    module = types.ModuleType("torch_memory_saver")
    module.torch_memory_saver = saver
    monkeypatch.setitem(sys.modules, "torch_memory_saver", module)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: library.calls.append("synchronize"))
    return library


def test_gradients_have_no_backup(library):
    memory = TorchMemorySaver()
    assert library.saver.hook_mode == "torch"
    for name in REGIONS:
        with memory.region(name):
            pass
    memory.pause(GRADIENTS)
    memory.resume(GRADIENTS)
    assert library.calls == [
        ("region", WEIGHTS, True),
        ("region", OPTIMIZER, True),
        ("region", GRADIENTS, False),
        "synchronize",
        ("pause", GRADIENTS),
        ("resume", GRADIENTS),
    ]


@pytest.fixture
def deep_ep(monkeypatch):
    """A stand-in for DeepEP whose Buffer notes what the library says while it is made."""

    class Buffer:
        def __init__(self, library, inside=None, error=None):
            self.seen = library.interesting
            if inside is not None:
                self.inner = inside()
                self.seen_after = library.interesting
            if error is not None:
                raise error

    module = types.ModuleType("deep_ep")
    module.Buffer = Buffer
    monkeypatch.setitem(sys.modules, "deep_ep", module)
    from slime.trainer.deep_ep import protect_deep_ep_buffers

    protect_deep_ep_buffers()
    protect_deep_ep_buffers()  # wraps once
    return module


@pytest.mark.parametrize("before", [True, False])
def test_buffers_are_made_outside_and_the_state_from_before_comes_back(before, deep_ep, library):
    library.interesting = before
    assert deep_ep.Buffer(library).seen is False
    assert library.interesting is before
    assert library.calls == ["synchronize"]
    with pytest.raises(OSError, match="no network card"):
        deep_ep.Buffer(library, error=OSError("no network card"))
    assert library.interesting is before
    outer = deep_ep.Buffer(library, inside=lambda: deep_ep.Buffer(library))
    assert (outer.seen, outer.inner.seen, outer.seen_after) == (False, False, False)
    assert library.interesting is before


def test_without_a_saver_in_use_buffers_are_made_as_ever(deep_ep, library, monkeypatch):
    library.saver._impl = None
    library.interesting = True
    assert deep_ep.Buffer(library).seen is True and library.calls == []
    monkeypatch.setitem(sys.modules, "torch_memory_saver", None)
    assert deep_ep.Buffer(library).seen is True


def test_a_missing_symbol_is_a_warning_with_advice_at_the_first_use(deep_ep, library, monkeypatch):
    monkeypatch.delattr(type(library), "tms_get_interesting_region")
    with pytest.warns(RuntimeWarning, match=r"tms_get_interesting_region.*Install a matching"):
        assert deep_ep.Buffer(library).seen is False
    del library.saver._impl
    with pytest.warns(RuntimeWarning, match="_impl"):
        deep_ep.Buffer(library)


def test_without_deep_ep_nothing_is_wrapped(monkeypatch):
    from slime.trainer.deep_ep import protect_deep_ep_buffers

    monkeypatch.setitem(sys.modules, "deep_ep", None)
    protect_deep_ep_buffers()


def _trainer(args):
    from slime.trainer.trainer import Trainer

    trainer = Trainer(args)
    return trainer, trainer.load()


@pytest.mark.usefixtures("single_rank")
@pytest.mark.parametrize("kind", [{}, {"bf16": True, "use_distributed_optimizer": True}])
def test_offloading_changes_no_result_and_paused_memory_is_not_used(
    kind, hf_model, args_for, rollout_of, tmp_path
):
    plain, _ = _trainer(args_for(hf_model(), **kind))
    ours, _ = _trainer(args_for(hf_model(), **kind, offload_train=True, save=str(tmp_path)))
    for i in range(2):
        want = plain.train(i, rollout_of(i))
        got = ours.train(i, rollout_of(i))
        assert (got["loss"], got["grad_norm"]) == (want["loss"], want["grad_norm"])
        ours.save(i)
        ours.memory.pause(OPTIMIZER, GRADIENTS)
        assert list(ours.hf_weight_buckets(1 << 30))
        ours.memory.pause(WEIGHTS)
        for use in (
            lambda: ours.train(9, rollout_of(9)),
            lambda: ours.save(9),
            lambda: list(ours.hf_weight_buckets(1 << 30)),
            lambda: ours.save_hf(tmp_path / "hf"),
        ):
            with pytest.raises(RuntimeError, match="paused"):
                use()
        ours.memory.resume(*REGIONS)
    args = args_for(hf_model(), **kind, offload_train=True, load=str(tmp_path))
    resumed, begin = _trainer(args)
    assert begin == 2
    third = [trainer.train(2, rollout_of(2))["loss"] for trainer in (plain, ours, resumed)]
    assert third[0] == third[1] == third[2]
