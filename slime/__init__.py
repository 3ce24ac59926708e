"""slime: RL post-training of language models with Megatron-core, SGLang and Ray."""

from slime.published_paths import install

install()
