"""The quick start: a tiny Qwen3 learns an exactly checkable task in a few minutes on two CPU cores."""
