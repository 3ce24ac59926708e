"""An engine's machine is lost in the middle of a request of a weight update, between two network
namespaces: the request fails long before an answer would be overdue; a slow answer is waited for.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from slime.weights.engine_calls import EngineAddress, EngineCalls
from tests.faults import namespaces
from tests.faults.namespaces import Cable

UNREACHABLE = 3.0  # seconds; the kernel counts whole ones
PATIENCE = 600.0
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def cable() -> Iterator[Cable]:
    """The test itself is at the near end."""
    if reason := namespaces.why_not():
        pytest.skip(reason)
    with namespaces.cable(f"slime-{os.getpid()}") as cable, namespaces.inside(cable.near):
        yield cable


@pytest.fixture
def listener(cable: Cable) -> Iterator[socket.socket]:
    """Listens at the far end."""
    with namespaces.inside(cable.far):
        made = socket.create_server((cable.far_address, 0))
    with made:
        yield made


def failure(listener: socket.socket, size: int, read: int, then: Callable[[], None]) -> str:
    """How a request of `size` bytes ends at an engine that reads some of them, does `then`, and
    answers. Empty if well."""
    host, port = listener.getsockname()
    engine = EngineAddress(f"http://{host}:{port}")
    over = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(read, socket.MSG_WAITALL)
            then()
            connection.sendall(ANSWER)
            over.wait()

    server = threading.Thread(target=serve)
    server.start()
    calls = EngineCalls([engine], timeout=PATIENCE, unreachable=UNREACHABLE)
    calls.post("/update", {"weights": "x" * size})
    over.set()
    server.join()
    calls.close()
    return calls.failed.get(engine.url, "")


def test_a_machine_that_is_lost_before_it_answers_is_noticed(cable, listener):
    assert "did not answer /update" in failure(listener, size=100, read=200, then=cable.swallow)


def test_a_machine_that_is_lost_while_it_is_sent_to_is_noticed(cable, listener):
    reason = failure(listener, size=64 * 1024**2, read=1024**2, then=cable.swallow)
    assert "did not answer /update" in reason


def test_a_machine_that_is_lost_before_it_is_asked_is_noticed(cable, listener):
    cable.swallow()
    engine = EngineAddress("http://{}:{}".format(*listener.getsockname()))
    calls = EngineCalls([engine], timeout=PATIENCE, unreachable=UNREACHABLE)
    calls.post("/update", {})
    assert "did not answer /update" in calls.failed[engine.url]
    calls.close()


def test_a_slow_answer_is_waited_for(listener):
    """Twice as long as a machine may be silent: its kernel acknowledges the probes."""
    assert failure(listener, size=100, read=200, then=lambda: time.sleep(2 * UNREACHABLE)) == ""
