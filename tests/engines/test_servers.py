"""Real engines behind a real router."""

import asyncio
import os
import re
import signal
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import requests

from slime.engines import ports
from slime.engines.errors import EngineDied
from slime.engines.servers import RolloutServers
from slime.engines.shared_memory import mapped_inodes
from slime.rollout import http_client
from tests.engines.real_servers import generate, largest_difference, make_args, make_model

PROMPTS = [[5, 9, 3], list(range(2, 38)), [7] * 20, [30, 2]]


def test_log_probs_of_a_batch_equal_those_of_the_hugging_face_model(servers):
    model = make_model(seed=0)
    answers = generate(servers.router_url, PROMPTS * 8, max_new_tokens=12, temperature=1.0)
    assert len(answers) == 32
    for prompt, answer in zip(PROMPTS * 8, answers, strict=True):
        assert len(answer["output_ids"]) == 12
        assert largest_difference(model, prompt, answer) < 1e-5
    assert len({tuple(answer["output_ids"]) for answer in answers}) > 8  # it samples


def test_the_plugin_is_active_in_every_process_of_the_engine(servers):
    log = Path(servers.args.run_dir) / "logs" / "engine_0.log"
    assert log.read_text().count("slime: batched CPU attention in process") == 1
    children = psutil.Process(servers.engines[0].process.pid).children(recursive=True)
    assert len(children) == 2  # scheduler, detokenizer: forked, they have what the server has
    for child in children:
        kept = re.search(
            r"Shared_Dirty: *(\d+) kB", Path(f"/proc/{child.pid}/smaps_rollup").read_text()
        )
        assert int(kept[1]) > 50_000


def test_start_tells_the_arguments_where_the_router_is(servers):
    url = f"http://{servers.args.sglang_router_ip}:{servers.args.sglang_router_port}"
    assert url == servers.router_url
    workers = requests.get(url + "/workers", timeout=10).json()["workers"]
    assert [worker["url"] for worker in workers] == servers.engine_urls


def test_everything_listens_on_the_loopback_interface_only(servers):
    addresses = set()
    for process in psutil.Process().children(recursive=True):
        for connection in process.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN:
                addresses.add(connection.laddr.ip)
    assert addresses == {"127.0.0.1"}


def test_a_frozen_scheduler_is_reported_and_a_thawed_one_is_well(servers, monkeypatch):
    monkeypatch.setattr(servers.args, "rollout_health_check_interval", 0.5)
    monkeypatch.setattr(servers.args, "rollout_health_check_timeout", 3.0)
    monkeypatch.setattr(servers, "_probes", servers._make_probes())
    everybody = psutil.Process().children(recursive=True)
    scheduler = next(p for p in everybody if "scheduler" in "".join(p.cmdline()))
    scheduler.suspend()
    try:
        started = time.monotonic()
        with pytest.raises(EngineDied, match="engine 0 runs but does not respond"):
            while time.monotonic() - started < 30:
                servers.check_responds()
                time.sleep(0.1)
    finally:
        scheduler.resume()
    monkeypatch.setattr(servers, "_probes", servers._make_probes())
    assert len(generate(servers.router_url, PROMPTS)) == len(PROMPTS)
    for _ in range(40):
        servers.check_responds()
        time.sleep(0.1)


def generate_until_error(servers):
    """What a rollout does: requests with retries, and the servers' check between retries."""

    async def body():
        http_client.set_liveness_check(servers.router_url, servers.check)
        params = {"max_new_tokens": 200, "ignore_eos": True}
        while True:
            body = {"input_ids": PROMPTS, "sampling_params": params}
            await http_client.post(servers.router_url + "/generate", body)

    try:
        asyncio.run(body())
    finally:
        http_client.set_liveness_check(servers.router_url, None)


def test_taken_ports_are_replaced_and_a_killed_engine_is_reported(
    model_folder, tmp_path, monkeypatch
):
    """Both the router's and the engine's port are taken between choice and bind."""
    first = []

    def free_ports(count, host="127.0.0.1", preferred=None):
        if len(first) < 2:  # one call for the engine, one for the router
            taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
            first.extend(taken)
            return [server.getsockname()[1] for server in taken]
        return ports_free(count, host, preferred)

    ports_free = ports.free_ports
    monkeypatch.setattr(ports, "free_ports", free_ports)
    # Other programs of the machine write to /tmp; pytest's own folders are too long for sockets.
    private = tempfile.mkdtemp(dir="/tmp")
    monkeypatch.setattr(tempfile, "tempdir", private)
    others = psutil.Process().children(recursive=True)
    servers = RolloutServers(make_args(model_folder, tmp_path), tmp_path)
    servers.start(progress=print)
    try:
        taken = {f"http://127.0.0.1:{server.getsockname()[1]}" for server in first}
        assert taken.isdisjoint({servers.router_url, *servers.engine_urls})
        assert len(generate(servers.router_url, PROMPTS)) == len(PROMPTS)
        servers.check()

        mine = [p for p in psutil.Process().children(recursive=True) if p not in others]
        mapped = mapped_inodes(process.pid for process in mine)
        scheduler = next(p for p in mine if "scheduler" in "".join(p.cmdline()))
        with ThreadPoolExecutor(1) as pool:
            generating = pool.submit(generate_until_error, servers)
            time.sleep(0.5)
            os.kill(scheduler.pid, signal.SIGKILL)
            with pytest.raises(EngineDied, match="engine 0") as error:
                generating.result(timeout=30)
        assert "the end of" in str(error.value)
    finally:
        started = time.monotonic()
        servers.stop()
        took = time.monotonic() - started
        for server in first:
            server.close()
    assert took < 6
    assert not [p for p in mine if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert mapped
    assert mapped.isdisjoint(entry.inode() for entry in os.scandir("/dev/shm"))
    os.rmdir(private)  # which fails if something is in it
    servers.stop()  # a second stop does nothing


def test_scratch_has_a_short_path_wherever_temporary_files_go(model_folder, tmp_path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    servers = RolloutServers(make_args(model_folder, tmp_path), tmp_path)
    assert len(servers._here._scratch.name) < 60
    servers.stop()
    assert not os.path.exists(servers._here._scratch.name)


def test_an_engine_that_cannot_start_is_reported_and_leaves_nothing(model_folder, tmp_path):
    args = make_args(model_folder, tmp_path, "--sglang-max-total-tokens", "0")
    args.sglang_server_args["attention_backend"] = "no_such_backend"
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    with pytest.raises(EngineDied, match="(?s)engine 0.*exited with.*no_such_backend"):
        RolloutServers(args, tmp_path).start(progress=print)
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before
