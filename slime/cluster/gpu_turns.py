"""Who has the GPU memory: the engines, or the trainers (actor, critic), in turns.

With `--colocate` they share GPUs. What is not needed next leaves before what is needed comes, so
two never have to fit at once: a trainer that has finished is out before another comes in.
"""

from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slime.cluster.children import Child, gather
from slime.cluster.release import Release
from slime.cluster.train_actor import TrainGroup
from slime.engines import memory as engine_memory
from slime.trainer import regions as train_memory

ENGINES, ACTOR, CRITIC = "engines", "actor", "critic"


@dataclass
class _Party:
    """One that has GPU memory, and what of it is paused now; a trainer starts at its first turn."""

    callee: Child | TrainGroup
    regions: tuple[str, ...]
    started: bool
    paused: set[str] = field(default_factory=set)

    def call(self, method: str, names: Iterable[str]) -> None:
        chosen = [name for name in self.regions if name in set(names)]
        if not chosen or not self.started:
            return
        calls = self.callee.call(method, chosen)
        gather(calls if isinstance(calls, list) else [calls])
        (self.paused.update if method == "pause_memory" else self.paused.difference_update)(chosen)


@dataclass
class _Restarted(_Party):
    """A trainer whose processes end when all of its memory is wanted by others."""

    release: Release | None = None

    def call(self, method: str, names: Iterable[str]) -> None:
        assert self.release is not None
        chosen = set(names)
        if method == "pause_memory":
            self.paused |= chosen if self.started else set()
            if self.paused >= set(self.regions):
                self.release.release()
        elif chosen:
            self.release.restart()
            self.paused -= chosen


class GpuTurns:
    """Pauses and resumes parties; without offloading it does nothing.

    Attributes:
        trainers_share: actor and critic cannot be in memory at the same time.
    """

    def __init__(
        self,
        args: Namespace,
        manager: Child,
        actor: TrainGroup | None,
        critic: TrainGroup | None = None,
        release: Release | None = None,
    ) -> None:
        self._parties: dict[str, _Party] = {}
        if args.offload_rollout and not args.debug_train_only:
            regions: tuple[str, ...] = engine_memory.REGIONS
            if args.update_weights_interval > 1:  # the weights have no backup and are still needed
                regions = tuple(name for name in regions if name != engine_memory.WEIGHTS)
            self._parties[ENGINES] = _Party(manager, regions, started=True)
        for name, group in ((ACTOR, actor), (CRITIC, critic)):
            if args.offload_train and group is not None:
                self._parties[name] = _Party(group, train_memory.REGIONS, started=False)
        if release is not None and actor is not None:
            regions = train_memory.REGIONS
            self._parties[ACTOR] = _Restarted(actor, regions, started=False, release=release)
        self.trainers_share = CRITIC in self._parties and not args.critic_own_slots

    def to_training(self, who: str = ACTOR) -> None:
        """Only trainer ``who`` has memory now; both, where the critic has GPUs of its own."""
        together = (who,) if self.trainers_share else (ACTOR, CRITIC)
        self._give(dict.fromkeys(together, train_memory.REGIONS))

    def to_weight_update(self) -> None:
        """The weights of actor and engines, and nothing else."""
        self._give({ACTOR: (train_memory.WEIGHTS,), ENGINES: (engine_memory.WEIGHTS,)})

    def to_rollout(self) -> None:
        """Only the engines have memory now."""
        self._give({ENGINES: engine_memory.REGIONS})

    def to_late_update(self) -> None:
        """The actor's weights too, for an engine that was started again while others generate."""
        self._give({ACTOR: (train_memory.WEIGHTS,), ENGINES: engine_memory.REGIONS})

    def _give(self, wanted: Mapping[str, tuple[str, ...]]) -> None:
        for name, party in self._parties.items():
            present = set(party.regions) - party.paused
            party.call("pause_memory", present - set(wanted.get(name, ())))
        for name, party in self._parties.items():
            party.started = party.started or name in wanted
            party.call("resume_memory", party.paused & set(wanted.get(name, ())))
