"""Finds out what the machine has, without importing torch (which takes seconds)."""

import re
from collections.abc import Mapping
from pathlib import Path

from slime.arguments.installed_options import find_on_path


def detect_device(environment: Mapping[str, str], dev: Path = Path("/dev")) -> str:
    """`cuda` where an NVIDIA device is visible and the installed torch was built for CUDA, else
    `cpu`.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return "cpu"
    has_device = any(re.fullmatch(r"nvidia\d+", entry.name) for entry in dev.glob("nvidia*"))
    return "cuda" if has_device and _torch_has_cuda() else "cpu"


def _torch_has_cuda() -> bool:
    """Read from the version file that every torch wheel carries. Without torch here (a head node):
    assume it has.
    """
    version = find_on_path("torch/version.py")
    if version is None:
        return True
    return (
        re.search(r"^cuda\b.*=\s*None", version.read_text(encoding="utf-8"), re.MULTILINE) is None
    )
