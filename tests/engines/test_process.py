"""Server processes: how their end is noticed, and how they are ended."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from slime.arguments.topology import EnginePlan
from slime.engines.command import server_environment
from slime.engines.engine import Engine
from slime.engines.errors import EngineDied
from slime.engines.node_processes import NodeProcesses
from slime.engines.process import ServerProcess


@pytest.fixture
def start(tmp_path):
    """Start a Python program as a server; what is left of it is killed after the test."""
    started = []
    with ThreadPoolExecutor(1) as spawner:

        def begin(code, may_freeze=30.0):
            command = [sys.executable, "-c", textwrap.dedent(code)]
            environment = server_environment(os.environ)
            log = tmp_path / "logs" / f"server_{len(started)}.log"
            server = ServerProcess("engine 3", command, environment, log, spawner, may_freeze)
            started.append(server)
            return server

        yield begin
        for server in started:
            server.kill(0.0)


def wait_for(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_running_server_passes_the_check(start):
    server = start("import time; time.sleep(60)")
    server.check()
    assert server.is_alive()


def test_an_exit_is_reported_with_code_and_end_of_the_log(start):
    server = start("for i in range(100): print('line', i)\nraise SystemExit('no such model')")
    wait_for(lambda: not server.is_alive())
    with pytest.raises(EngineDied) as error:
        server.check()
    assert f"engine 3 (pid {server.pid}) exited with 1" in str(error.value)
    assert "| no such model" in str(error.value)
    assert "| line 99" in str(error.value)
    assert "| line 70" not in str(error.value)


def test_a_kill_is_reported_with_its_signal(start):
    server = start("import time; time.sleep(60)")
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not server.is_alive())
    with pytest.raises(EngineDied, match="was killed by SIGKILL"):
        server.check()


SPAWNS = """
    import subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    print(child.pid)
    time.sleep(60)
"""


@pytest.mark.parametrize("part", ["server", "child"])
def test_a_frozen_process_counts_as_dead_after_a_while(start, part):
    server = start(SPAWNS, may_freeze=0.3)
    wait_for(lambda: psutil.Process(server.pid).children() and server.log.read_text())
    (child,) = psutil.Process(server.pid).children()
    pid = server.pid if part == "server" else child.pid
    server.check()
    started = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(EngineDied, match=r"engine 3 .* is frozen: one of its processes has been"):
        while True:
            server.check()
            assert time.monotonic() < started + 10
            time.sleep(0.01)
    assert time.monotonic() - started >= 0.3
    with pytest.raises(EngineDied):
        server.check()  # as long as it is so
    os.kill(pid, signal.SIGCONT)
    wait_for(lambda: psutil.Process(pid).status() != psutil.STATUS_STOPPED)
    time.sleep(0.1)
    server.check()


def test_a_server_that_is_busy_or_sleeps_is_not_frozen(start):
    """Whether it answers is not asked: one that takes a large transfer may be silent for long."""
    for code in ("while True: pass", "import time; time.sleep(60)"):
        server = start(code, may_freeze=0.03)
        for _ in range(30):
            server.check()
            time.sleep(0.01)


def test_stop_ends_a_server_that_ignores_sigterm_and_all_that_it_spawned(start, tmp_path):
    server = start(
        f"""
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c",
            "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"])
        open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
        time.sleep(60)
        """
    )
    wait_for(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text())
    child = int((tmp_path / "child").read_text())
    server.terminate()
    server.kill(0.3)
    assert gone(server.pid)
    wait_for(lambda: gone(child))


def test_stop_removes_the_semaphores_and_shared_memory_it_left(start, tmp_path):
    server = start(
        f"""
        import mmap, multiprocessing, os, time
        lock = multiprocessing.get_context("spawn").Lock()
        path = f"/dev/shm/slime_test_{{os.getpid()}}"
        handle = open(path, "wb+")
        handle.truncate(4096)
        mapped = mmap.mmap(handle.fileno(), 4096)
        open({str(tmp_path / "ready")!r}, "w").write(lock._semlock.name + " " + path)
        time.sleep(60)
        """
    )
    wait_for(lambda: (tmp_path / "ready").exists() and (tmp_path / "ready").read_text())
    semaphore, path = (tmp_path / "ready").read_text().split()
    semaphore = f"/dev/shm/sem.{semaphore.lstrip('/')}"
    assert os.path.exists(semaphore)
    server.note_shared_memory()
    for process in psutil.Process(server.pid).children():
        process.kill()  # Python's own cleaner of semaphores
    server.kill(0.0)
    assert not os.path.exists(path)
    assert not os.path.exists(semaphore)


def test_a_server_dies_with_its_parent(tmp_path):
    program = f"""
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from slime.engines.process import ServerProcess

server = ServerProcess("engine", [sys.executable, "-c", "import time; time.sleep(60)"],
                       dict(os.environ), Path({str(tmp_path / "log")!r}), ThreadPoolExecutor(1))
time.sleep(1)
server.check()
print(server.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        parent.kill()
        parent.wait()
        wait_for(lambda: gone(pid), seconds=5)


def test_processes_of_one_engine_live_and_end_together(start):
    code = "import time; print('rank {}', flush=True); time.sleep(60)"
    parts = [start(code.format(rank)) for rank in (0, 1)]
    both = NodeProcesses(parts)
    wait_for(lambda: all(f"rank {rank}" in both.log_tail() for rank in (0, 1)), 60.0)
    assert (both.pid, both.log) == (parts[0].pid, parts[0].log)
    assert both.is_alive()
    both.check()
    parts[1].kill(0.0)
    assert not both.is_alive()
    with pytest.raises(EngineDied, match="SIGKILL"):
        both.check()
    both.terminate()  # one of them cannot be asked any more
    both.kill(5.0)
    assert gone(parts[0].pid) and gone(parts[1].pid)
    with pytest.raises(EngineDied) as ended:
        both.check()
    assert all(str(part.pid) in str(ended.value) for part in parts)
    both.set_log_aside(".attempt1.log")
    assert [part.log.with_suffix(".attempt1.log").exists() for part in parts] == [True, True]


def test_no_part_of_an_engine_waits_for_a_machine_that_is_gone(start):
    begun = []

    class There:
        """A machine that starts what it is told."""

        address, node = "127.0.0.1", "here"

        def meeting_port(self):
            return 1

        def free_ports(self, count):
            return [2] * count

        def start(self, *arguments):
            begun.append(start("import time; time.sleep(60)"))
            return begun[-1]

    class Gone(There):
        """One that does not answer any more."""

        def start(self, *arguments):
            raise EngineDied("its machine is gone")

    plan = EnginePlan(0, "default", "/models/m", num_gpus=2, num_nodes=2, peers=1)
    engine = Engine(plan, trained=True, hosts=[There(), Gone()], gpu_ids=[0, 1])
    engine.choose_port()
    with pytest.raises(EngineDied, match="gone"):
        engine.start()
    (part,) = begun
    assert gone(part.pid)
