"""Megatron-core: the model, HF <-> Megatron conversion, the train step, checkpoints."""
