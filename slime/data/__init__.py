"""Prompt sets, the data source with cursor and buffer, rollout dumps, and batches for training."""
