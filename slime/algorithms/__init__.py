"""The mathematics of RL post-training: log-probs, advantages, losses, KL, reducers. Torch only."""
