"""Nodes of a Ray that no run of slime started, on this machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from slime.engines.ports import free_ports


@contextlib.contextmanager
def ray_head(cpus: int) -> Iterator[str]:
    """The address of a Ray of one node; it asks for a token, which the environment then has."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    scratch = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # short: it holds sockets
    (port,) = free_ports(1)
    options = ["--head", f"--port={port}", f"--temp-dir={scratch}", "--include-dashboard=false"]
    node = start_node(Path(scratch, "head.log"), f"--num-cpus={cpus}", *options)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        cut_power(node)
        shutil.rmtree(scratch, ignore_errors=True)
        del os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"]


def start_node(log: Path, *options: str) -> subprocess.Popen:
    """A raylet (with `--head`: and the rest of Ray)."""
    words = ["start", "--block", "--node-ip-address=127.0.0.1", *options]
    with log.open("w") as output:
        node = subprocess.Popen(
            [sys.executable, "-m", "ray.scripts.scripts", *words],
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    deadline = time.monotonic() + 90
    while "Ray runtime started" not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    return node


def cut_power(node: subprocess.Popen) -> None:
    """Everything of the node is killed at once."""
    for process in [*psutil.Process(node.pid).children(recursive=True), node]:
        with contextlib.suppress(psutil.Error):
            process.kill()
    node.wait()
