"""Writes an OCI image layout whose every byte follows from its members.

Format: https://github.com/opencontainers/image-spec (layout, manifest, configuration, layer). The
compressed layers also depend on zlib, whose output has not changed in years; `diff_ids`, the
digests of the layers before compression, do not.
"""

import gzip
import hashlib
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ci.image.members import Members, with_folders

_CREATED = "1980-01-01T00:00:00Z"
_LEVEL = 6
_MEDIA = "application/vnd.oci.image."


@dataclass(frozen=True)
class Layer:
    """What a layer holds, and what to call it in the image's history."""

    title: str
    members: Members


class _Digesting:
    """A writer that knows the digest and the size of all that went through it."""

    def __init__(self, sink: IO[bytes] | gzip.GzipFile) -> None:
        self.sink, self.sha256, self.size = sink, hashlib.sha256(), 0

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        self.size += len(data)
        self.sink.write(data)
        return len(data)

    def flush(self) -> None:
        self.sink.flush()

    @property
    def digest(self) -> str:
        return "sha256:" + self.sha256.hexdigest()


def write_layout(out: Path, layers: Sequence[Layer], config: dict[str, Any]) -> str:
    """Fill the new folder `out`; returns the digest of the image's manifest.

    `config` is what a container starts with: Env, Entrypoint, WorkingDir.
    """
    blobs = out / "blobs/sha256"
    blobs.mkdir(parents=True)
    written = [_write_layer(blobs, layer) for layer in layers]
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "created": _CREATED,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in written]},
        "history": [{"created": _CREATED, "created_by": layer.title} for layer in layers],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MEDIA + "manifest.v1+json",
        "config": _write_json(blobs, configuration, "config.v1+json"),
        "layers": [descriptor for descriptor, _ in written],
    }
    described = _write_json(blobs, manifest, "manifest.v1+json")
    index = {"schemaVersion": 2, "manifests": [described | {"annotations": _named("latest")}]}
    (out / "index.json").write_bytes(_canonical(index))
    (out / "oci-layout").write_bytes(_canonical({"imageLayoutVersion": "1.0.0"}))
    return str(described["digest"])


def _named(tag: str) -> dict[str, str]:
    return {"org.opencontainers.image.ref.name": tag}


def _canonical(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _write_json(blobs: Path, value: dict[str, Any], kind: str) -> dict[str, Any]:
    content = _canonical(value)
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": _MEDIA + kind, "digest": f"sha256:{digest}", "size": len(content)}


def _write_layer(blobs: Path, layer: Layer) -> tuple[dict[str, Any], str]:
    """Descriptor of the compressed layer, and the digest of the layer itself."""
    unfinished = blobs / "unfinished"
    with unfinished.open("wb") as file:
        compressed = _Digesting(file)
        with gzip.GzipFile("", "wb", _LEVEL, compressed, mtime=0) as packed:  # type: ignore[arg-type]
            plain = _Digesting(packed)
            with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
                for info, opener in with_folders(layer.members).values():
                    if opener is None:
                        archive.addfile(info)
                        continue
                    with opener() as content:
                        archive.addfile(info, content)
    unfinished.rename(blobs / compressed.digest.removeprefix("sha256:"))
    kind = _MEDIA + "layer.v1.tar+gzip"
    descriptor = {"mediaType": kind, "digest": compressed.digest, "size": compressed.size}
    return descriptor, plain.digest
