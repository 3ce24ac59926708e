"""Run a command on GPUs that no other command of this machine has: takes locks, then starts it.

    python ci/gpu_lock_exec.py --count 2 -- COMMAND ...      # any two that are free
    python ci/gpu_lock_exec.py --devices 0,1 -- COMMAND ...  # these
    python ci/gpu_lock_exec.py --status                      # who holds what

A GPU is locked by an flock on one file. The kernel releases it when this process ends, however it
ends, and no other process ever has the file open: what the command leaves behind holds no GPU.
The command itself is killed when this process dies. A request takes all its GPUs or none, so two of
them cannot wait for each other; there is no queue, so a wide one may wait while narrow ones pass.

Exits as the command does, with 128+n if signal n ended it or this process; 1 if the time is over.
"""

import argparse
import ctypes
import fcntl
import json
import os
import pwd
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

LOCK_PATH_PATTERN = "/dev/shm/custom_gpu_lock_{gpu_id}.lock"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FIRST_DELAY, LONGEST_DELAY = 0.02, 1.0  # seconds of back-off
GRACE = 10.0  # seconds that a command has to end after a signal, before it is killed
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def installed_gpus() -> int:
    """Count the GPUs that this machine, or container, has."""
    return sum(bool(re.fullmatch(r"nvidia\d+", p.name)) for p in Path("/dev").iterdir())


def lock_path(pattern: str, gpu: int) -> Path:
    """The lock file of one GPU."""
    return Path(pattern.replace("{gpu_id}", str(gpu)))


def try_lock(path: Path) -> int | None:
    """Lock a file, made if need be; its descriptor (closed on exec), or None if it is taken."""
    umask = os.umask(0)  # every user of the machine takes the same locks
    try:
        try:  # without O_CREAT first: Linux can forbid it on another user's file in /dev/shm
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    finally:
        os.umask(umask)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def try_all(candidates: Sequence[int], count: int, pattern: str) -> dict[int, int]:
    """Lock `count` of the candidates in ascending order: GPU to descriptor, or {} and no lock."""
    held: dict[int, int] = {}
    for tried, gpu in enumerate(sorted(candidates)):
        if len(held) == count or len(held) + len(candidates) - tried < count:
            break
        descriptor = try_lock(lock_path(pattern, gpu))
        if descriptor is not None:
            held[gpu] = descriptor
    if len(held) == count:
        return held
    for descriptor in held.values():
        os.close(descriptor)
    return {}


def watched() -> list[signal.Signals]:
    """The stop signals, without those that the caller ignores (nohup)."""
    return [s for s in STOP_SIGNALS if signal.getsignal(s) is not signal.SIG_IGN]


def sleep(seconds: float) -> None:
    """Sleep; a stop signal, which main blocks, ends this process with 128+n."""
    if arrived := signal.sigtimedwait(watched(), seconds):
        sys.exit(128 + arrived.si_signo)


@contextmanager
def hold(
    candidates: Sequence[int], count: int, pattern: str, timeout: float, command: Sequence[str]
) -> Iterator[list[int]]:
    """Hold `count` of the candidate GPUs; yields their ids, ascending.

    Raises:
        TimeoutError: they were not free within `timeout` seconds; the message says who holds them.
    """
    deadline = time.monotonic() + timeout
    longest = FIRST_DELAY
    while not (held := try_all(candidates, count, pattern)):
        left = deadline - time.monotonic()
        if left <= 0:
            lines = [f"wanted {count} of these GPUs, not free within {timeout:g} s:"]
            raise TimeoutError("\n  ".join(lines + status(candidates, pattern)))
        # At random, so that requests which met do not meet again.
        sleep(min(random.uniform(0, longest), left))
        longest = min(2 * longest, LONGEST_DELAY)
    try:
        for descriptor in held.values():
            os.ftruncate(descriptor, 0)  # the note of one that was killed
            os.pwrite(descriptor, describe_self(command), 0)
        yield list(held)
    finally:
        for descriptor in held.values():
            os.ftruncate(descriptor, 0)
            os.close(descriptor)


def describe_self(command: Sequence[str]) -> bytes:
    """What the holder writes into its lock files."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may have no entry
        user = str(os.getuid())
    since = datetime.now(UTC).isoformat(timespec="seconds")
    note = {"pid": os.getpid(), "user": user, "command": shlex.join(command), "since": since}
    return json.dumps(note).encode()


def status(gpus: Sequence[int], pattern: str) -> list[str]:
    """One line per GPU: free, or who holds it."""
    return [f"GPU {gpu}: {status_of(lock_path(pattern, gpu))}" for gpu in sorted(gpus)]


def status_of(path: Path) -> str:
    """Free, or who holds this lock; takes a shared lock for an instant."""
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return "free"
            except BlockingIOError:
                note = json.load(file)
    except FileNotFoundError:
        return "free"
    except ValueError:  # its holder has not written yet
        return "held"
    return "held by pid {pid} ({user}) since {since}: {command}".format(**note)


def start(command: Sequence[str], environment: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the command in its own process group, killed if this process dies."""
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before prctl
            os._exit(128 + signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return subprocess.Popen(command, env=environment, process_group=0, preexec_fn=in_child)


def run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run the command to its end, or to a stop signal; the code to exit with.

    Needs SIGCHLD and the stop signals blocked: they are waited for, which leaves no race.
    """
    try:
        child = start(command, environment)
    except OSError as error:
        print(f"gpu_lock_exec: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    while child.poll() is None:
        arrived = signal.sigwait([signal.SIGCHLD, *watched()])
        if arrived != signal.SIGCHLD:
            end_group(child, arrived)
            return 128 + arrived
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def end_group(child: "subprocess.Popen[bytes]", number: int) -> None:
    """Pass a signal on to the command's process group; kill what is left of it after GRACE."""
    deadline = time.monotonic() + GRACE
    try:
        os.killpg(child.pid, number)
        while time.monotonic() < deadline:
            child.poll()
            os.killpg(child.pid, 0)
            signal.sigtimedwait([signal.SIGCHLD], 0.05)
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # none is left
    child.wait()


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options and the command after `--`; exits with 2 and a sentence if they are wrong."""
    cut = list(argv).index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(usage="%(prog)s [options] -- COMMAND ...")
    wanted = parser.add_mutually_exclusive_group()
    wanted.add_argument("--count", type=int, help="any so many free GPUs")
    wanted.add_argument("--devices", help="these GPUs, such as 0,1")
    option = parser.add_argument
    option("--total-gpus", type=int, default=installed_gpus() or 8, help="default %(default)s")
    option("--timeout", type=float, default=86400.0, help="seconds, default %(default)g")
    option("--target-env-name", default="CUDA_VISIBLE_DEVICES", help="default %(default)s")
    option("--lock-path-pattern", default=LOCK_PATH_PATTERN, help="default %(default)s")
    option("--print-only", action="store_true", help="print the ids, hold nothing")
    option("--status", action="store_true", help="print who holds what")
    args, command = parser.parse_args(argv[:cut]), list(argv[cut + 1 :])
    if "{gpu_id}" not in args.lock_path_pattern:
        parser.error(f"--lock-path-pattern {args.lock_path_pattern}: write {{gpu_id}} into it")
    if args.status:
        return args, command
    if args.devices is not None:
        known = {str(gpu): gpu for gpu in range(args.total_gpus)}
        names = args.devices.split(",")
        if len(set(names) & known.keys()) < len(names):
            parser.error(f"--devices {args.devices}: not different GPUs of {','.join(known)}")
        args.devices = [known[name] for name in names]
    elif args.count is None or not 1 <= args.count <= args.total_gpus:
        parser.error(f"say --devices, or --count from 1 to {args.total_gpus} (--total-gpus)")
    if bool(command) == args.print_only:
        parser.error("say either --print-only or -- COMMAND")
    return args, command


def main(argv: Sequence[str]) -> int:
    """Do what the options say; the code to exit with."""
    args, command = parse(argv)
    every, pattern = range(args.total_gpus), args.lock_path_pattern
    if args.status:
        print("\n".join(status(every, pattern)))
        return 0
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a caller's SIG_IGN would lose the exit code
    signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGCHLD, *watched()])
    candidates, count = args.devices or every, args.count or len(args.devices)
    try:
        with hold(candidates, count, pattern, args.timeout, command) as gpus:
            visible = ",".join(map(str, gpus))
            if args.print_only:
                print(visible)
                return 0
            return run(command, {**os.environ, args.target_env_name: visible})
    except TimeoutError as error:
        print(f"gpu_lock_exec: TimeoutError: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
