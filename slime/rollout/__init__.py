"""Rollout: the generation loop, its client of router and engines, and evaluation."""
