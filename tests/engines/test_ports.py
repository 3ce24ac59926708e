"""Ports against real sockets."""

import socket

import pytest

from slime.engines.ports import free_ports, free_run, interface_of, says_port_taken


def test_ports_are_different_and_can_be_bound_together():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    held = [socket.create_server(("127.0.0.1", port)) for port in ports]
    for server in held:
        server.close()


def test_a_run_of_ports_can_be_bound_and_avoids_one_that_is_taken(monkeypatch):
    first = free_run(7)
    held = [socket.create_server(("127.0.0.1", first + index)) for index in range(7)]
    offered = iter([first - 3, first + 3])
    real = free_ports
    monkeypatch.setattr(
        "slime.engines.ports.free_ports",
        lambda *given: [next(offered, None) or real(*given)[0]],
    )
    found = free_run(7)
    assert not set(range(found, found + 7)) & set(range(first, first + 7))
    for server in held:
        server.close()


def test_the_interface_of_an_address():
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") == ""  # an address for documents, of no machine


def test_the_preferred_port_is_taken_only_if_it_is_free():
    (port,) = free_ports(1)
    assert free_ports(3, preferred=port)[0] == port
    with socket.create_server(("127.0.0.1", port)):
        ports = free_ports(3, preferred=port)
    assert port not in ports
    assert len(set(ports)) == 3


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("RuntimeError: Address already in use (os error 98)", True),
        ("OSError: [Errno 98] error while attempting to bind on address", True),
        ("ERROR: [Errno 981] something else; os error 9800", False),
        ("torch.OutOfMemoryError: 98 bytes", False),
    ],
)
def test_a_taken_port_is_recognised_in_a_log(log, expected):
    assert says_port_taken(log) is expected


def test_connections_of_a_server_that_is_gone_do_not_hold_its_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        assert free_ports(1, preferred=port) != [port]  # somebody listens
    accepted.close()  # the server's side goes first: the kernel remembers the connection
    client.close()
    with socket.socket() as plain, pytest.raises(OSError, match="in use"):
        plain.bind(("127.0.0.1", port))
    assert free_ports(1, preferred=port) == [port]
