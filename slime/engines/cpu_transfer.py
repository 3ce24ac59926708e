"""Stands in for Mooncake's transfer engine on a CPU: prefill engines hand their key/value cache to
decode engines on the same machine.

Mooncake's published wheels want the libraries of InfiniBand even for TCP. SGLang asks little of it,
to write to an address in a peer's memory, and between processes of one user the kernel does that
(`process_vm_writev`). All else of disaggregation stays SGLang's own.
"""

import ctypes
import os
from collections.abc import Sequence
from typing import Any

_ENGINE = (
    "sglang.srt.distributed.device_communicators.mooncake_transfer_engine.MooncakeTransferEngine"
)
_PR_SET_PTRACER = 0x59616D61
_ANY_PROCESS = ctypes.c_ulong(-1)
_MOST_PARTS = 1024  # of one call: IOV_MAX


class _Part(ctypes.Structure):
    """The kernel's `struct iovec`."""

    _fields_ = [("address", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def register() -> None:
    """Put it in Mooncake's place, in an engine on a CPU."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(_ENGINE, MemoryTransfer, HookType.REPLACE)


class MemoryTransfer:
    """SGLang's `MooncakeTransferEngine` as its disaggregation uses it; 0 is success, -1 failure.

    A session is host:process, where SGLang has host:port.
    """

    def __init__(
        self, hostname: str, gpu_id: int | None = None, ib_device: str | None = None
    ) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        # Where Yama guards processes from each other: peers may write to this one.
        self._libc.prctl(_PR_SET_PTRACER, _ANY_PROCESS, 0, 0, 0)
        from sglang.srt.disaggregation.mooncake.conn import MooncakeKVSender

        # Else the places in the cache go through pinned memory, which only GPUs have.
        MooncakeKVSender.supports_host_tensor_indices = False

    def get_session_id(self) -> str:
        """What a peer has to name to write here."""
        return f"localhost:{os.getpid()}"

    def batch_register(self, ptrs: Sequence[int], lengths: Sequence[int]) -> int:
        """Nothing: all memory of the process can be written."""
        return 0

    def batch_deregister(self, ptrs: Sequence[int]) -> int:
        """As little."""
        return 0

    def get_ib_device(self) -> None:
        """There is none."""

    def send_probe(self, peer_session_id: str) -> int:
        """Whether a peer is there."""
        return 0 if os.path.exists(f"/proc/{_process(peer_session_id)}") else -1

    def batch_transfer_sync(
        self,
        session_id: str,
        buffers: Sequence[int],
        peer_buffer_addresses: Sequence[int],
        lengths: Sequence[int],
    ) -> int:
        """Copy parts of this process's memory to addresses of the peer's."""
        parts = list(zip(buffers, peer_buffer_addresses, lengths, strict=True))
        written = 0
        for start in range(0, len(parts), _MOST_PARTS):
            written += self._write(_process(session_id), parts[start : start + _MOST_PARTS])
        return 0 if written == sum(lengths) else -1

    def _write(self, pid: int, parts: Sequence[tuple[Any, Any, Any]]) -> int:
        """Bytes written; -1 if there was an error."""
        ours = (_Part * len(parts))(*[_Part(int(at), int(size)) for at, _, size in parts])
        theirs = (_Part * len(parts))(*[_Part(int(at), int(size)) for _, at, size in parts])
        write = self._libc.process_vm_writev
        write.restype = ctypes.c_ssize_t
        count = ctypes.c_ulong(len(parts))
        return int(write(ctypes.c_int(pid), ours, count, theirs, count, ctypes.c_ulong(0)))


def _process(session: str) -> int:
    return int(session.rpartition(":")[2])
