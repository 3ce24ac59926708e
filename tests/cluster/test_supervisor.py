"""Whatever ends the driver, what it started ends too."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slime.cluster.processes import RUN_ID_VARIABLE
from slime.cluster.watchdog import LOOK_SECONDS
from tests.cluster.ended import ended

DRIVER = """
import subprocess, sys, time
from slime.cluster.supervisor import Interrupted, Supervisor
supervisor = Supervisor()
try:
    with supervisor:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                                 start_new_session=True)
        print(child.pid, supervisor.scratch, flush=True)
        if {fail}:
            raise ValueError("broken")
        try:
            {wait}
        except Interrupted:
            if {disguised}:
                raise SystemError("what Ray's compiled code makes of it")
            raise
except Interrupted as interrupt:
    sys.exit(128 + interrupt.number)
"""

MAPS_SHARED_MEMORY = """
import mmap, tempfile, time
with tempfile.NamedTemporaryFile(dir="/dev/shm", delete=False) as file:
    file.write(bytes(4096))
    file.flush()
    mapping = mmap.mmap(file.fileno(), 4096)
    print(file.name, flush=True)
    time.sleep(60)
"""


def start(
    wait: str = "time.sleep(60)", fail: bool = False, disguised: bool = False
) -> tuple[subprocess.Popen, int, Path]:
    code = DRIVER.format(wait=wait, fail=fail, disguised=disguised)
    driver = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    pid, scratch = driver.stdout.readline().split()
    return driver, int(pid), Path(scratch)


def assert_gone(child: int, scratch: Path, seconds: float = 10) -> None:
    assert ended(child, seconds), f"process {child} is left"
    deadline = time.monotonic() + seconds
    while scratch.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not scratch.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(number: int) -> None:
    driver, child, scratch = start()
    driver.send_signal(number)
    assert driver.wait(15) == 128 + number
    assert_gone(child, scratch, seconds=1)


def test_a_signal_is_known_again_after_compiled_code_hid_it() -> None:
    driver, child, scratch = start(disguised=True)
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(15) == 128 + signal.SIGTERM
    assert_gone(child, scratch, seconds=1)


def test_a_signal_that_met_a_finalizer_comes_again() -> None:
    finalizer = "type('Slow', (), {'__del__': lambda self: time.sleep(1)})(); time.sleep(60)"
    driver, child, scratch = start(finalizer)
    time.sleep(0.3)
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(15) == 128 + signal.SIGTERM
    assert_gone(child, scratch, seconds=1)


def test_kill_9_of_the_driver_ends_everything() -> None:
    driver, child, scratch = start()
    driver.kill()
    driver.wait(5)
    assert_gone(child, scratch)


def test_shared_memory_goes_even_if_its_processes_ended_before_the_driver(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    watchdog = subprocess.Popen(
        [sys.executable, "-m", "slime.cluster.watchdog", "a-run", str(tmp_path / "scratch")],
        stdin=subprocess.PIPE,
        env=environment,
    )
    server = subprocess.Popen(
        [sys.executable, "-c", MAPS_SHARED_MEMORY],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment, RUN_ID_VARIABLE: "a-run"},
    )
    path = Path(server.stdout.readline().strip())
    try:
        time.sleep(3 * LOOK_SECONDS)
        server.kill()
        server.wait(5)
        watchdog.stdin.close()
        assert watchdog.wait(10) == 0
        assert not path.exists()
    finally:
        server.kill()
        path.unlink(missing_ok=True)


def test_an_error_ends_everything() -> None:
    driver, child, scratch = start(fail=True)
    assert driver.wait(15) == 1
    assert_gone(child, scratch, seconds=1)


def test_a_run_that_ends_well_leaves_nothing_either() -> None:
    driver, child, scratch = start("time.sleep(0.1)")
    assert driver.wait(15) == 0
    assert_gone(child, scratch, seconds=1)
