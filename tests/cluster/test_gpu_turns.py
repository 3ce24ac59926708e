"""Whose GPU memory leaves and comes when: never two that need not be there at once."""

from argparse import Namespace
from typing import ClassVar

import pytest

from slime.cluster import gpu_turns
from slime.cluster.gpu_turns import ACTOR, CRITIC, GpuTurns

ENGINE = {"weights", "kv_cache", "cuda_graph"}
TRAIN = {"weights", "optimizer", "gradients"}


class Party:
    """Keeps the set of what is resident, as SGLang and the trainer do, and their errors."""

    def __init__(self, name, regions, log):
        self.name, self.resident, self.log = name, set(regions), log

    def call(self, method, regions):
        regions = set(regions)
        if method == "pause_memory":
            assert regions <= self.resident
            self.resident -= regions
        else:
            assert not regions & self.resident
            self.resident |= regions
        self.log.append((method, self.name))


@pytest.fixture
def parties(monkeypatch):
    monkeypatch.setattr(gpu_turns, "gather", lambda calls: calls)
    log = []
    regions = {"engines": ENGINE, "actor": TRAIN, "critic": TRAIN}
    return {name: Party(name, each, log) for name, each in regions.items()} | {"log": log}


def _turns(parties, **options):
    args = Namespace(
        offload_rollout=True,
        offload_train=True,
        debug_train_only=False,
        update_weights_interval=1,
        critic_own_slots=0,
    )
    vars(args).update(options)
    return GpuTurns(args, parties["engines"], parties["actor"], parties["critic"])


def test_a_rollout_with_a_critic(parties):
    turns = _turns(parties)
    turns.to_training(ACTOR)
    assert ("pause_memory", "critic") not in parties["log"], "it has not started yet"
    engines, actor, critic = (parties[name] for name in ("engines", "actor", "critic"))
    for _ in range(2):
        turns.to_training(CRITIC)
        assert (engines.resident, actor.resident, critic.resident) == (set(), set(), TRAIN)
        del parties["log"][:]
        turns.to_training(ACTOR)
        assert (engines.resident, actor.resident, critic.resident) == (set(), TRAIN, set())
        # the critic is out before the actor comes in
        assert parties["log"] == [("pause_memory", "critic"), ("resume_memory", "actor")]
        turns.to_weight_update()
        assert (engines.resident, actor.resident) == ({"weights"}, {"weights"})
        turns.to_rollout()
        assert (engines.resident, actor.resident, critic.resident) == (ENGINE, set(), set())
    turns.to_rollout()  # nothing is paused or resumed twice


def test_everything_leaves_before_anything_comes(parties):
    turns = _turns(parties)
    turns.to_training()
    turns.to_rollout()
    del parties["log"][:]
    for change in (turns.to_training, turns.to_weight_update, turns.to_rollout):
        change()
        methods = [method for method, _ in parties["log"]]
        assert methods == sorted(methods), "pauses come first"
        del parties["log"][:]


def test_engines_keep_weights_that_are_not_sent_after_each_rollout(parties):
    turns = _turns(parties, update_weights_interval=2)
    turns.to_training()
    assert parties["engines"].resident == {"weights"}
    turns.to_rollout()
    assert parties["engines"].resident == ENGINE


@pytest.mark.parametrize("options", [{"offload_rollout": False}, {"debug_train_only": True}])
def test_engines_that_stay(options, parties):
    turns = _turns(parties, **options)
    for change in (turns.to_training, turns.to_weight_update, turns.to_rollout):
        change()
        assert parties["engines"].resident == ENGINE
    assert parties["actor"].resident == set()


def test_without_offloading_nothing_is_asked(parties):
    turns = _turns(parties, offload_rollout=False, offload_train=False)
    for change in (turns.to_training, turns.to_weight_update, turns.to_rollout):
        change()
    assert parties["log"] == []


def test_a_critic_with_gpus_of_its_own_stays_beside_the_actor(parties):
    turns = _turns(parties, critic_own_slots=1)
    assert not turns.trainers_share
    turns.to_training(CRITIC)
    assert parties["actor"].resident == parties["critic"].resident == TRAIN
    turns.to_rollout()
    assert parties["actor"].resident == parties["critic"].resident == set()


def test_a_released_trainer_ends_only_when_nothing_of_it_is_needed(parties):
    class Release:
        steps: ClassVar[list[str]] = []

        def release(self):
            self.steps.append("release")

        def restart(self):
            self.steps.append("restart")

    args = Namespace(
        offload_rollout=False, offload_train=False, debug_train_only=False, critic_own_slots=0
    )
    release = Release()
    turns = GpuTurns(args, parties["engines"], parties["actor"], release=release)
    turns.to_training()
    turns.to_weight_update()
    assert "release" not in release.steps, "its weights are being sent"
    turns.to_rollout()
    assert release.steps.pop() == "release"
    turns.to_training()
    assert release.steps.pop() == "restart"
