"""Megatron defaults for arguments that were not made by `parse_args`."""

from argparse import Namespace

from slime.arguments.resolve_model import padded_vocab_size, resolve_precision


def set_default_megatron_args(args: Namespace) -> Namespace:
    """Fill in, in place, what Megatron leaves open and slime decides: precision, layer
    implementation, padding.
    """
    resolve_precision(args)
    if getattr(args, "padded_vocab_size", None) is None and args.vocab_size is not None:
        args.padded_vocab_size = padded_vocab_size(
            args.vocab_size, args.make_vocab_size_divisible_by, args.tensor_model_parallel_size
        )
    return args
