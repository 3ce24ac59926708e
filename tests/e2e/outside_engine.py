"""An SGLang engine that no run of slime started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

from slime.arguments.device import detect_device
from slime.engines.command import to_flags
from slime.engines.shared_memory import mapped_inodes, unlink

# What SGLang's CPU path needs, as slime's own engines get it.
CPU = {
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "grammar_backend": "none",
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "sleep_on_idle": True,
    "max_running_requests": 32,
    "max_total_tokens": 4096,
    "log_level": "warning",
}
# As slime's own engines: else the router's question for its health, every second, is a request, and
# one that is under way when weights arrive makes the engine refuse them.
PLAIN_HEALTH = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}


@dataclass(frozen=True)
class Engine:
    """A running server: `address` is host:port."""

    address: str
    process: subprocess.Popen


@contextmanager
def outside_engine(model: str, seconds: float = 600) -> Iterator[Engine]:
    """A server of a model on this machine; ended by its pid."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    on_cpu = detect_device(os.environ) == "cpu"
    module = "slime.engines.cpu_launch" if on_cpu else "sglang.launch_server"
    options = {"model_path": model, "host": "127.0.0.1", "port": port} | (CPU if on_cpu else {})
    process = subprocess.Popen(
        [sys.executable, "-m", module, *to_flags(options)],
        env={**os.environ, **PLAIN_HEALTH, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        _wait(process, port, seconds)
        yield Engine(f"127.0.0.1:{port}", process)
    finally:
        left = _shared_memory(process.pid)
        process.terminate()
        process.wait(60)
        unlink(left)


def _shared_memory(pid: int) -> set[int]:
    """What SGLang leaves behind: at its end it kills its own processes."""
    with suppress(psutil.Error):
        server = psutil.Process(pid)
        return mapped_inodes(each.pid for each in (server, *server.children(recursive=True)))
    return set()


def _wait(process: subprocess.Popen, port: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the engine ended with {process.returncode}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=5) as reply:
                json.load(reply)
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.5)
    raise TimeoutError(f"the engine did not answer within {seconds:g} s")
