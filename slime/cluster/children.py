"""Actors with a name and a log file, and waiting for them so that a failure names its cause."""

import functools
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from slime.engines.log_tail import log_tail

Method = TypeVar("Method", bound=Callable[..., Any])
_POLL_SECONDS = 1.0
CONTROL = "control"
"""The concurrency group of calls that are answered while a long one is under way."""


class RunFailed(RuntimeError):
    """A part of the run failed; the message says which, why, and shows the end of its log."""


@dataclass(frozen=True)
class Call:
    """A remote call in flight."""

    child: "Child"
    method: str
    ref: ray.ObjectRef


@dataclass(frozen=True)
class Child:
    """A Ray actor of this run. ``log`` receives all that the actor's process prints."""

    name: str
    handle: Any
    log: Path

    def call(self, method: str, *args: Any, **kwargs: Any) -> Call:
        """Start ``method`` on the actor."""
        return Call(self, method, getattr(self.handle, method).remote(*args, **kwargs))

    def ask(self, method: str, *args: Any) -> Call:
        """As `call`, for an actor with the group `CONTROL`: does not queue behind other calls."""
        aside = getattr(self.handle, method).options(concurrency_group=CONTROL)
        return Call(self, method, aside.remote(*args))


def gather(
    calls: Sequence[Call], timeout: float | None = None, beside: Sequence[Call] = ()
) -> list[Any]:
    """Results of all calls, in their order; the first failure of any of them is raised at once.

    Calls ``beside`` are not waited for, but one of them that fails in the meantime is raised too.

    Raises:
        RunFailed: a child died or raised; siblings that wait for it are not waited for.
        TimeoutError: not all were done after ``timeout`` seconds.
    """
    pending = {call.ref: call for call in calls}
    watched = {call.ref: call for call in beside if call.ref not in pending}
    started = time.monotonic()
    while pending:
        done, _ = ray.wait([*pending, *watched], num_returns=1, timeout=_POLL_SECONDS)
        for ref in done:
            _result(pending.pop(ref) if ref in pending else watched.pop(ref))
        if timeout is not None and pending and time.monotonic() - started >= timeout:
            names = ", ".join(f"{call.child.name}.{call.method}" for call in pending.values())
            raise TimeoutError(f"no answer after {timeout:.0f} s from {names}")
    return [ray.get(call.ref) for call in calls]


def _result(call: Call) -> Any:
    try:
        return ray.get(call.ref)
    except RayTaskError as error:
        cause = error.cause or error
        reason = f"{type(cause).__name__}: {cause}"
        raise RunFailed(
            f"{call.child.name} failed in {call.method}: {reason}\n{log_tail(call.child.log)}"
        ) from None
    except RayActorError as error:
        raise RunFailed(
            f"{call.child.name} died in {call.method}: {error}\n{log_tail(call.child.log)}"
        ) from None
    except RayError as error:
        raise RunFailed(f"{call.child.name} was lost in {call.method}: {error}") from None


def redirect_output(log: Path) -> None:
    """Send this process's output, C libraries' included, to ``log`` from now on."""
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def log_memory_turn(what: str, regions: Sequence[str]) -> None:
    """Note in this child's log when it gave memory or took it."""
    print(f"{time.time():.6f} {what} {' '.join(regions)}", flush=True)


def logged(method: Method) -> Method:
    """Write the traceback of an error to this child's log too; Ray passes on only its text."""

    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except Exception:
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
            raise

    return wrapper  # type: ignore[return-value]
