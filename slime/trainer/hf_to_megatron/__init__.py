"""One function per model family: a Megatron parameter from Hugging Face tensors."""
