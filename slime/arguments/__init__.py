"""Every option of slime: flags, YAML files, validation, resolution and the plan of a run."""

from slime.arguments.parse import parse_args, parse_megatron_role_args

__all__ = ["parse_args", "parse_megatron_role_args"]
