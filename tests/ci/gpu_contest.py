"""Many processes that want simulated GPUs at once, some of them killed, and a witness."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from ci import gpu_lock_exec

GPUS = 8
PROGRAM = [sys.executable, "-I", "-S", gpu_lock_exec.__file__]

# Run under the lock: claims each GPU by a file that must not exist, works, and gives it back.
# A claim left by a killed command counts while that command is alive.
COMMAND = """
import os, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])

def alive(pid, started):
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    ending = fields[0] in "ZX" or int(fields[6]) & 4  # PF_EXITING, linux/sched.h
    return fields[19] == started and not ending

def identity(pid):
    with open(f"/proc/{pid}/stat") as file:
        return f"{pid} {file.read().rpartition(')')[2].split()[19]}"

def check(path):
    owner, command = (line.split() for line in open(path).read().splitlines())
    deadline = time.monotonic() + 1  # the kernel kills it just after its owner
    while alive(*command):
        if alive(*owner):
            sys.exit(f"held twice: {path}")
        if time.monotonic() > deadline:
            sys.exit(f"the command outlived its lock: {path}")
        time.sleep(0.001)
    os.unlink(path)

gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
mine = f"{folder}/{os.getppid()}.claim"
with open(mine, "w") as file:
    file.write(f"{identity(os.getppid())}\\n{identity(os.getpid())}\\n")
for gpu in gpus:
    path = f"{folder}/gpu{gpu}"
    if os.path.exists(path):
        check(path)
    try:
        os.link(mine, path)  # as O_EXCL, and with its text at once
    except FileExistsError:
        sys.exit(f"held twice: {path}")
time.sleep(seconds)
for gpu in gpus:
    os.unlink(f"{folder}/gpu{gpu}")
os.unlink(mine)
"""


@dataclass
class Contest:
    """What became of the processes."""

    finished: int = 0
    killed: int = 0
    killed_at_work: int = 0  # of those, while they held GPUs
    wrong: list[str] = field(default_factory=list)  # any other end, in the process's own words
    waits: list[float] = field(default_factory=list)  # seconds from start to end, of the finished


@dataclass
class Rival:
    """One process and its fate."""

    process: "subprocess.Popen[str]"
    began: float
    kill_at: float  # infinity: never, or not decided yet; 0: done
    kill_by: int
    kill_at_work: bool  # works until it is killed


def arguments(draw: random.Random, gpus: int) -> list[str]:
    """Any so many GPUs, or named ones."""
    wanted = draw.choices([1, 2, 4, gpus], weights=[8, 4, 2, 1])[0]
    if draw.random() < 0.3:
        return ["--devices", ",".join(map(str, draw.sample(range(gpus), wanted)))]
    return ["--count", str(wanted)]


def start(draw: random.Random, folder: Path, timeout: float, last_kill: float) -> Rival:
    """Start one process that works for some hundredths of a second."""
    fate = draw.choices(["finish", "killed at some time", "killed at work"], [6, 2, 2])[0]
    seconds = 60 if fate == "killed at work" else draw.uniform(0.02, 0.1)
    options = [f"--lock-path-pattern={folder}/{{gpu_id}}.lock", f"--total-gpus={GPUS}"]
    command = [sys.executable, "-I", "-S", "-c", COMMAND, folder, str(seconds)]
    process = subprocess.Popen(
        [*PROGRAM, *arguments(draw, GPUS), *options, f"--timeout={timeout}", "--", *command],
        stderr=subprocess.PIPE,
        text=True,
    )
    now = time.monotonic()
    kill_at = now + draw.uniform(0, last_kill) if fate == "killed at some time" else float("inf")
    kill_by = draw.choice([signal.SIGKILL, signal.SIGTERM])
    return Rival(process, now, kill_at, kill_by, fate == "killed at work")


def kill_due(rival: Rival, folder: Path) -> None:
    """Kill it if it is time; it has not been reaped, so the number is still its own."""
    now = time.monotonic()
    if rival.kill_at_work and (folder / f"{rival.process.pid}.claim").exists():
        rival.kill_at, rival.kill_at_work = now + random.uniform(0, 0.1), False
    if rival.kill_at and now > rival.kill_at:
        os.kill(rival.process.pid, rival.kill_by)
        rival.kill_at = 0


def end(rival: Rival, contest: Contest) -> None:
    """Count an ended process."""
    said, code = rival.process.stderr.read(), rival.process.returncode
    rival.process.stderr.close()
    if code == 0:
        contest.finished += 1
        contest.waits.append(time.monotonic() - rival.began)
    elif rival.kill_at == 0 and code in (-rival.kill_by, 128 + rival.kill_by):
        contest.killed += 1
    else:
        contest.wrong.append(f"exit {code}: {said}")


def contest(processes: int, folder: Path, timeout: float, seed: int) -> Contest:
    """Let them compete; all have ended when this returns."""
    draw, result = random.Random(seed), Contest()
    last_kill = processes / 15  # seconds; about as long as it takes
    rivals = [start(draw, folder, timeout, last_kill) for _ in range(processes)]
    while rivals:
        for rival in rivals:
            kill_due(rival, folder)
        for rival in [rival for rival in rivals if rival.process.poll() is not None]:
            end(rival, result)
            rivals.remove(rival)
        time.sleep(0.01)
    result.killed_at_work = len(list(folder.glob("*.claim")))
    return result


def assert_fair(result: Contest, processes: int, folder: Path) -> None:
    """No GPU was held twice, none is still held, and everyone not killed had its turn."""
    assert not result.wrong, "\n".join(result.wrong)
    assert result.finished + result.killed == processes
    assert result.killed_at_work, "nobody was killed who held a GPU"
    free = gpu_lock_exec.status(range(GPUS), f"{folder}/{{gpu_id}}.lock")
    assert free == [f"GPU {gpu}: free" for gpu in range(GPUS)]
