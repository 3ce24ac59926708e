"""Graders, their dispatcher, and the normalisation of rewards by group."""
