"""The quick start: a tiny Qwen3 learns an exactly checkable task within minutes on two cores."""
