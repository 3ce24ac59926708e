"""Health probes against a real HTTP server that stops answering."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from slime.engines.errors import EngineDied
from slime.engines.health import HealthProbes


class Server(ThreadingHTTPServer):
    """Answers with `status`; holds answers back while `answering` is cleared."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.asked = 0
        self.answering = threading.Event()
        self.answering.set()
        self.url = f"http://127.0.0.1:{self.server_port}/health"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        self.server.answering.wait(5)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.answering.set()
    server.shutdown()
    thread.join()
    server.server_close()


def probes_of(server: Server, interval: float = 0.02) -> HealthProbes:
    return HealthProbes(
        {"engine 0": (server.url, lambda: "the end of its log")}, interval, timeout=0.1
    )


def check_for(probes: HealthProbes, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    slow = 0
    while time.monotonic() < deadline:
        started = time.monotonic()
        probes.check()
        slow += time.monotonic() - started > 0.05
        time.sleep(0.005)
    assert slow <= 2  # it never waits for an answer, but the machine may be busy


def test_a_server_that_hangs_is_reported(server):
    server.answering.clear()
    with pytest.raises(EngineDied, match="engine 0 runs but does not respond: 3 .*\\n.*its log"):
        check_for(probes_of(server), 5)
    assert server.asked == 3


def test_a_server_that_is_unwell_is_reported(server):
    server.status = 503
    with pytest.raises(EngineDied, match="HTTP 503"):
        check_for(probes_of(server), 5)


def test_two_failures_and_a_success_are_no_death(server):
    probes = probes_of(server)
    for _ in range(3):
        server.answering.clear()
        asked = server.asked
        while server.asked < asked + 2:
            check_for(probes, 0.01)
        server.answering.set()
        check_for(probes, 0.3)
    probes.stop()


def test_nothing_is_asked_unless_somebody_waits_nor_more_often_than_the_interval(server):
    probes = probes_of(server, interval=30.0)
    assert server.asked == 0
    check_for(probes, 0.2)
    assert server.asked == 1
