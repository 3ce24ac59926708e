"""Numbers about rollouts and evaluations: statistics, pass rates, staleness, rules of merging."""

from slime.metrics.evaluation import eval_metrics
from slime.metrics.rollout import rollout_metrics

__all__ = ["eval_metrics", "rollout_metrics"]
