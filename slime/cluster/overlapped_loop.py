"""The loop of ``slime.train_async``: rollout i + 1 is generated while i trains.

Its samples were made with the weights before training on i: one step off-policy. How far a sample
really is behind is measured from the versions that its tokens carry, never assumed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slime.cluster.children import Call
from slime.cluster.loop import Loop
from slime.cluster.rollout_manager import RolloutResult


@dataclass
class OverlappedLoop(Loop):
    """As `Loop`, with the next rollout in flight.

    An ordinary rollout function must not meet an update of the weights, so its rollout is finished
    first. One that generates in the background (`slime.rollout.fully_async_rollout`) goes on all
    the time: the engines are paused for the update, and the tokens they have are kept.
    """

    in_flight: Call | None = None
    background: bool = False

    def run(self) -> None:
        """Run all rollouts that are left."""
        (self.background,) = self._wait([self.manager.call("generates_in_background")])
        super().run()

    def _generate(self, rollout_id: int) -> RolloutResult:
        result = self.weights.wait(self.in_flight or self._start(rollout_id))
        following = rollout_id + 1
        self.in_flight = self._start(following) if following < self.num_rollout else None
        return result

    def _start(self, rollout_id: int) -> Call:
        return self.manager.call("generate", rollout_id, rollout_id)

    def _beside(self) -> Sequence[Call]:
        return [self.in_flight] if self.in_flight else []

    def _update_weights(self, version: int) -> float:
        if not self.background:
            self._await_rollout()
            return super()._update_weights(version)
        self._wait([self.manager.ask("pause")])
        seconds = super()._update_weights(version)
        self._wait([self.manager.ask("go_on")])
        return seconds

    def _evaluate(self, rollout_id: int, step: int) -> None:
        if not self.background:  # it aborts the engines' requests at its end: all of them
            self._await_rollout()
        super()._evaluate(rollout_id, step)

    def _await_rollout(self) -> None:
        if self.in_flight:
            with self.report.phase("rollout"):
                self.weights.wait(self.in_flight)
