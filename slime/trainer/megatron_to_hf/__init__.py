"""One function per model family: Hugging Face tensors from a Megatron parameter."""
