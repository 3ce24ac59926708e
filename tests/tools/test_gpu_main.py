"""A GPU test locks what it needs, fails at once on a machine with too little, or runs its twin."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

# As gpu_main.py on a machine with so many GPUs, with lock files of its own.
DRIVER = """
import sys
from ci import gpu_lock_exec
from tools.bazel import gpu_main
gpu_lock_exec.installed_gpus = lambda: {gpus}
gpu_lock_exec.LOCK_PATH_PATTERN = {pattern!r}
sys.exit(gpu_main.main())
"""
TEST = "import os\ndef test_it(): print('SEES', os.environ.get('CUDA_VISIBLE_DEVICES'))\n"


@pytest.fixture
def run(tmp_path: Path):
    def run(gpus: int, *options: str, **variables: str) -> subprocess.CompletedProcess:
        (tmp_path / "test_it.py").write_text(TEST)
        driver = DRIVER.format(gpus=gpus, pattern=str(tmp_path / "gpu_{gpu_id}.lock"))
        command = [sys.executable, "-c", driver, *options, f"--file={tmp_path}/test_it.py", "-s"]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TESTBRIDGE", "XML"))}
        paths = {"PYTHONPATH": os.pathsep.join(sys.path), "TEST_TMPDIR": str(tmp_path / "tmp")}
        (tmp_path / "tmp").mkdir(exist_ok=True)
        workspace = Path(os.environ["SLIME_RUNFILES"])
        paths |= {"TEST_WORKSPACE": workspace.name, "TEST_SRCDIR": str(workspace.parent)}
        env = {**inherited, **paths, "SLIME_CUDA_PYTHON": sys.executable, **variables}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    return run


def test_it_sees_the_gpus_it_locked(run, tmp_path: Path) -> None:
    done = run(3, "--gpus=2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SEES 0,1" in done.stdout
    assert sorted(path.name for path in tmp_path.glob("*.lock")) == ["gpu_0.lock", "gpu_1.lock"]


@pytest.mark.parametrize(("twin", "end"), [((), "."), (("--twin",), "; --config=cpu-twin runs")])
def test_too_few_gpus_fail_at_once_with_a_sentence(run, twin: tuple[str, ...], end: str) -> None:
    began = time.monotonic()
    done = run(1, "--gpus=2", *twin)
    assert done.returncode == 1
    assert done.stderr.startswith(f"This test needs 2 GPUs and this machine has 1{end}")
    assert "SEES" not in done.stdout
    assert time.monotonic() - began < 10


def test_the_twin_needs_and_locks_none(run, tmp_path: Path) -> None:
    done = run(0, "--gpus=2", "--twin", SLIME_CPU_TWIN="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SEES None" in done.stdout
    assert not list(tmp_path.glob("*.lock"))


def test_a_test_without_a_twin_fails_also_then(run) -> None:
    done = run(0, "--gpus=1", SLIME_CPU_TWIN="1")
    assert (done.returncode, done.stderr) == (1, "This test needs 1 GPU and this machine has 0.\n")
