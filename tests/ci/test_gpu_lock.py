"""A command gets GPUs that no other command has, and nothing of it keeps them."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ci import gpu_lock_exec
from tests.ci.gpu_contest import PROGRAM, assert_fair, contest

SHOW = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def nothing_ignored():
    """Children begin with the default action, whatever started the tests."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in STOP}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.fixture
def pattern(tmp_path: Path) -> str:
    return f"{tmp_path}/gpu_{{gpu_id}}.lock"


@pytest.fixture
def start(pattern: str):
    """Start the program with 4 GPUs; what still runs at the end of the test is killed."""
    started = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        options = [f"--lock-path-pattern={pattern}", "--total-gpus=4"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([*PROGRAM, *options, *arguments], text=True, **pipes))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(start):
    def run(*arguments: str) -> tuple[int, str, str]:
        process = start(*arguments)
        out, err = process.communicate(timeout=20)
        return process.returncode, out, err

    return run


@pytest.fixture
def holding(start):
    """Start a command that holds GPUs until its input ends; returns once it has them."""

    def holding(*arguments: str) -> "subprocess.Popen[str]":
        process = start(*arguments, "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; cat")
        process.gpus = process.stdout.readline().strip()
        return process

    return holding


def free(pattern: str) -> list[int]:
    lines = gpu_lock_exec.status(range(4), pattern)
    return [gpu for gpu, line in enumerate(lines) if line.endswith(": free")]


def becomes_free(pattern: str, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while free(pattern) != [0, 1, 2, 3] and time.monotonic() < deadline:
        time.sleep(0.01)
    return free(pattern) == [0, 1, 2, 3]


def test_any_free(run, holding):
    holding("--devices", "1")
    assert run("--count", "2", *SHOW) == (0, "0,2\n", "")


def test_named_devices_in_ascending_order(run):
    assert run("--devices", "3,1", *SHOW)[1] == "1,3\n"


def test_locks_are_taken_in_ascending_order(pattern, monkeypatch):
    taken = []
    monkeypatch.setattr(gpu_lock_exec, "try_lock", lambda path: taken.append(path.name) or None)
    for candidates in ([2, 0, 1], [1, 0, 2]):
        gpu_lock_exec.try_all(candidates, 1, pattern)
    assert taken == ["gpu_0.lock", "gpu_1.lock", "gpu_2.lock"] * 2


def test_all_or_nothing(start, run, holding, pattern):
    holding("--devices", "2")
    waiting = start("--devices", "0,2,3", *SHOW)
    time.sleep(0.3)
    assert waiting.poll() is None
    assert run("--devices", "0,3", "--timeout", "10", *SHOW)[1] == "0,3\n"


def test_a_waiting_command_starts_when_its_gpus_are_free(start, holding):
    holder = holding("--count", "4")
    waiting = start("--count", "3", *SHOW)
    holder.communicate("")
    assert waiting.communicate(timeout=20)[0] == "0,1,2\n"


def test_timeout_says_who_holds_what(run, holding):
    holder = holding("--devices", "0,3")
    code, out, err = run("--count", "3", "--timeout", "0.2", *SHOW)
    assert (code, out) == (1, "")
    lines = err.splitlines()
    assert "TimeoutError: wanted 3" in lines[0] and "0.2 s" in lines[0]
    for line, gpu in ((lines[1], 0), (lines[4], 3)):
        assert line.startswith(f"  GPU {gpu}: held by pid {holder.pid} (")
        assert line.endswith("sh -c 'echo $CUDA_VISIBLE_DEVICES; cat'")
    assert lines[2:4] == ["  GPU 1: free", "  GPU 2: free"]


def test_timeout_is_an_exception(pattern):
    second = gpu_lock_exec.hold([0], 1, pattern, 0, ["second"])
    message = "GPU 0: held by pid .* first"
    with (
        gpu_lock_exec.hold([0], 1, pattern, 0, ["first"]),
        pytest.raises(TimeoutError, match=message),
    ):
        second.__enter__()
    assert free(pattern) == [0, 1, 2, 3]


def test_target_env_name(run):
    shown = run("--count=1", "--target-env-name=GPUS", "--", "sh", "-c", "echo $GPUS")
    assert shown[1] == "0\n"


def test_lock_files_follow_the_pattern(run, tmp_path):
    run("--devices", "1,2", "--", "true")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu_1.lock", "gpu_2.lock"]
    assert all(path.stat().st_mode & 0o777 == 0o666 for path in tmp_path.iterdir())


def test_print_only_holds_nothing(run, holding, pattern):
    holder = holding("--devices", "0")
    assert run("--count", "2", "--print-only") == (0, "1,2\n", "")
    assert free(pattern) == [1, 2, 3]
    holder.communicate("")


def test_status(run, holding):
    holder = holding("--devices", "1")
    code, out, _ = run("--status")
    assert code == 0
    lines = out.splitlines()
    assert [line for line in lines if line.endswith("free")] == [lines[0], *lines[2:]]
    assert lines[1].startswith(f"GPU 1: held by pid {holder.pid} (")


def test_total_gpus_of_a_machine_without(monkeypatch):
    monkeypatch.setattr(Path, "iterdir", lambda path: iter([Path("/dev/nvidiactl")]))
    assert gpu_lock_exec.installed_gpus() == 0
    assert gpu_lock_exec.parse(["--status"])[0].total_gpus == 8
    monkeypatch.setattr(Path, "iterdir", lambda path: iter([path / "nvidia0", path / "nvidia1"]))
    assert gpu_lock_exec.installed_gpus() == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--count", "5", *SHOW], "--count from 1 to 4"),
        (["--count", "0", *SHOW], "--count from 1 to 4"),
        (SHOW, "say --devices, or --count"),
        (["--devices", "0,4", *SHOW], "--devices 0,4: not different GPUs of 0,1,2,3"),
        (["--devices", "1,1", *SHOW], "--devices 1,1"),
        (["--devices", "a", *SHOW], "--devices a"),
        (["--count", "1"], "-- COMMAND"),
        (["--count", "1", "--lock-path-pattern", "x.lock", *SHOW], "{gpu_id}"),
    ],
)
def test_wrong_options(run, arguments, sentence):
    code, _, err = run(*arguments)
    assert code == 2 and sentence in err.splitlines()[-1]


def test_the_command_keeps_its_own_options(run):
    assert run("--count=1", "--", "echo", "--", "--count")[1] == "-- --count\n"


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_exits_as_the_command_does(run, script, code):
    assert run("--count=1", "--", "sh", "-c", script)[0] == code


def test_no_such_command(run, pattern):
    code, _, err = run("--count=1", "--", "/nowhere/at-all")
    assert code == 127 and "/nowhere/at-all" in err
    assert free(pattern) == [0, 1, 2, 3]


def test_killed(start, pattern):
    process = start("--count=2", "--", "sh", "-c", "echo $$; exec sleep 60")
    command = int(process.stdout.readline())
    assert free(pattern) == [2, 3]
    process.kill()
    process.wait()
    assert becomes_free(pattern)
    assert gone(command), "the command uses GPUs that it no longer holds"


def test_what_the_command_leaves_behind_holds_nothing(run, pattern, tmp_path):
    script = "sleep 60 >/dev/null 2>&1 & echo $!"
    _, out, _ = run("--count=4", "--", "sh", "-c", script)
    left = int(out)
    try:
        assert free(pattern) == [0, 1, 2, 3]
        files = [os.readlink(link) for link in Path(f"/proc/{left}/fd").iterdir()]
        assert not [file for file in files if file.startswith(str(tmp_path))]
    finally:
        os.kill(left, signal.SIGKILL)


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Whether a process ends in time; a zombie has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def takes_signals(pid: int, seconds: float = 20.0) -> bool:
    """Whether the program has come so far: it blocks SIGCHLD together with the stop signals."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        (line,) = re.findall(r"^SigBlk:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.M)
        if int(line, 16) >> (signal.SIGCHLD - 1) & 1:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("number", STOP)
def test_a_signal_ends_the_whole_group_first(start, number, pattern, tmp_path):
    # The grandchild does not end before a file is there; until then the GPU stays locked.
    permit = tmp_path / "permit"
    grandchild = (
        "import os, signal, sys, time\n"
        f"def end(*_):\n    while not os.path.exists({str(permit)!r}): time.sleep(0.01)\n"
        "    sys.exit()\n"
        f"signal.signal({number.value}, end)\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(60)"
    )
    script = ["sh", "-c", '"$0" -I -S -c "$1" & read line', sys.executable, grandchild]
    process = start("--count=1", "--", *script)
    pid = int(process.stdout.readline())
    process.send_signal(number)
    time.sleep(0.2)
    assert free(pattern) == [1, 2, 3]
    assert process.poll() is None
    permit.touch()
    assert process.wait(timeout=20) == 128 + number
    assert gone(pid, seconds=0.1)
    assert becomes_free(pattern)


def test_a_group_that_ignores_the_signal_is_killed(monkeypatch):
    monkeypatch.setattr(gpu_lock_exec, "GRACE", 0.2)
    script = "trap '' TERM; echo; while :; do sleep 0.1; done"
    child = subprocess.Popen(["sh", "-c", script], process_group=0, stdout=subprocess.PIPE)
    with child:
        child.stdout.readline()
        gpu_lock_exec.end_group(child, signal.SIGTERM)
        assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", STOP)
def test_a_signal_ends_the_waiting(start, holding, number):
    holding("--count=4")
    waiting = start("--count=1", *SHOW)
    assert takes_signals(waiting.pid)
    waiting.send_signal(number)
    assert waiting.wait(timeout=20) == 128 + number
    assert waiting.stdout.read() == ""


def test_nohup(start, pattern):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    process = start("--count=1", "--", "sh", "-c", "echo; read line; exit 5")
    process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    process.communicate("\n", timeout=5)
    assert process.returncode == 5


def test_thirty_processes_compete(tmp_path):
    assert_fair(contest(30, tmp_path, timeout=50, seed=1), 30, tmp_path)
