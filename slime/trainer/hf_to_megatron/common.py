"""Read Hugging Face safetensors: an index of what lies where, and only what is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from slime.trainer.layer_rules import EMBED_TOKENS, LM_HEAD, Family, find_rule
from slime.trainer.quantize import FP8, SCALE, dequantize_fp8_blocks
from slime.trainer.tensor_layout import merge_qkv

FP8_BLOCK = (128, 128)


class CheckpointError(ValueError):
    """A checkpoint is not what it should be; the message names it and all that is wrong."""


def _weight_map(index: Path) -> dict[str, str]:
    try:
        return dict(json.loads(index.read_text())["weight_map"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{index} cannot be read, copy it again: {error!r}") from None


class SafetensorReader:
    """Tensors by name from ``*.safetensors``; a file is mapped when first needed.

    Attributes:
        used: names of all tensors that have been asked for.
    """

    def __init__(self, path: str | Path) -> None:
        """
        Raises:
            CheckpointError: the folder holds no safetensors, or its index is none or names files
                that are not there.
        """
        self.path = Path(path)
        self.used: set[str] = set()
        self._open: dict[str, Any] = {}
        self._files: dict[str, str] = {}
        index = self.path / "model.safetensors.index.json"
        if index.is_file():
            self._files = _weight_map(index)
            missing = sorted(f for f in set(self._files.values()) if not (self.path / f).is_file())
            if missing:
                raise CheckpointError(
                    f"{self.path}: the index names files that are not there: {missing}"
                )
            return
        for file in sorted(self.path.glob("*.safetensors")):
            self._files.update(dict.fromkeys(self._handle(file.name).keys(), file.name))
        if not self._files:
            raise CheckpointError(f"{self.path} holds no *.safetensors")

    def _handle(self, file: str) -> Any:
        if file not in self._open:
            try:
                self._open[file] = safe_open(self.path / file, framework="pt", device="cpu")
            except (OSError, SafetensorError) as error:
                raise CheckpointError(
                    f"{self.path / file} is damaged, copy it again: {error}"
                ) from None
        return self._open[file]

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def names(self) -> set[str]:
        """Every tensor of the checkpoint."""
        return set(self._files)

    def _file(self, name: str) -> Any:
        if name not in self._files:
            raise KeyError(f"no tensor {name!r} in {self.path}")
        self.used.add(name)
        return self._handle(self._files[name])

    def get_slice(self, name: str) -> Any:
        """A lazy tensor, of which an index reads a part.

        Raises:
            CheckpointError: its file is damaged or does not hold it.
            KeyError: no such tensor.
        """
        try:
            return self._file(name).get_slice(name)
        except SafetensorError:
            where = self.path / self._files[name]
            raise CheckpointError(
                f"{where} lacks {name!r}, which the index says it holds"
            ) from None

    def read(self, name: str, dim: int = 0, begin: int = 0, end: int | None = None) -> torch.Tensor:
        """The part of a tensor from ``begin`` to ``end`` along ``dim``.

        Weights in FP8 blocks are multiplied by their scales, into float32.

        Raises:
            KeyError: no such tensor.
        """
        part = self.get_slice(name)[(slice(None),) * dim + (slice(begin, end),)]
        if part.dtype != FP8:
            return part
        scale = self._file(name + SCALE).get_tensor(name + SCALE)
        return dequantize_fp8_blocks(
            part, scale, FP8_BLOCK, begin=(begin, 0) if dim == 0 else (0, begin)
        )

    def get_tensor(self, name: str) -> torch.Tensor:
        """
        Raises:
            KeyError: no such tensor.
        """
        return self.read(name)

    def get_halves(self, name: str) -> torch.Tensor:
        """A tensor that holds gate and up, one above the other: whole, it is what it is."""
        return self.get_tensor(name)


class ShareReader(SafetensorReader):
    """A view of a reader that gives, and reads, one tensor-parallel rank's part of every tensor."""

    def __init__(
        self,
        reader: SafetensorReader,
        dim: int,
        rank: int,
        size: int,
        lengths: tuple[int, int] | None = None,
    ) -> None:
        """
        Args:
            dim: along which tensors are divided into ``size`` parts.
            lengths: of that dimension in the file and, padded with rows of zeros, in the model (a
                vocabulary); by default as in the file.
        """
        self.path, self.used = reader.path, reader.used
        self._open, self._files = reader._open, reader._files
        self._dim, self._rank, self._size, self._lengths = dim, rank, size, lengths

    def _part(self, name: str, begin: int, length: int, padded: int) -> torch.Tensor:
        """This rank's part of ``length`` rows from ``begin``, which count as ``padded``."""
        if padded % self._size:
            raise ValueError(
                f"{name} cannot be split into {self._size} along dimension {self._dim}"
            )
        share = padded // self._size
        first, last = (min(n, length) for n in (self._rank * share, (self._rank + 1) * share))
        part = self.read(name, self._dim, begin + first, begin + last)
        if last - first < share:
            rows = part.new_zeros(share - last + first, *part.shape[1:])
            part = torch.cat([part, rows])
        return part

    def _length_of(self, name: str) -> int:
        shape = self.get_slice(name).get_shape()
        if len(shape) <= self._dim:
            raise ValueError(f"{name} is {shape}: it has no dimension {self._dim}")
        return shape[self._dim]

    def get_tensor(self, name: str) -> torch.Tensor:
        """
        Raises:
            KeyError: no such tensor.
            ValueError: it cannot be divided, or is of another vocabulary.
        """
        length = self._length_of(name)
        wanted, padded = self._lengths or (length, length)
        if length != wanted:
            raise ValueError(f"{name} has {length} rows, the model's vocabulary {wanted} tokens")
        return self._part(name, 0, length, padded)

    def get_halves(self, name: str) -> torch.Tensor:
        """This rank's part of gate, and below it that of up."""
        half = self._length_of(name) // 2
        return torch.cat([self._part(name, begin, half, half) for begin in (0, half)])


def family_tensor(family: Family, name: str, reader: SafetensorReader, config: Any) -> torch.Tensor:
    """The value of a global Megatron parameter: whole, or the share that ``reader`` gives.

    Args:
        name: such as ``decoder.layers.3.mlp.linear_fc1.weight``, local or TransformerEngine naming.
        config: the parsed config.json (a dict).

    Raises:
        KeyError: unknown parameter, or the checkpoint lacks tensors (all of them are named).
    """
    rule = find_rule(family, name, config["num_hidden_layers"])
    if rule.sources == (LM_HEAD,) and LM_HEAD not in reader:
        # Tied embeddings: only a last pipeline stage away from the first has this copy.
        return reader.get_tensor(EMBED_TOKENS)
    missing = [source for source in rule.sources if source not in reader]
    if missing:
        raise KeyError(f"no tensor {', '.join(map(repr, missing))}")
    if rule.merge == "halves":
        return reader.get_halves(rule.sources[0])
    parts = [reader.get_tensor(source) for source in rule.sources]
    if rule.merge == "qkv":
        q, k, v = parts
        return merge_qkv(q, k, v, k.size(0) // head_dim(config))
    if rule.merge == "swap":
        return torch.cat(parts[0].chunk(2, 1)[::-1], 1)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def head_dim(config: Any) -> int:
    """Channels of an attention head."""
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
