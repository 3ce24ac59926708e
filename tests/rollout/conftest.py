"""One engine behind a router for all tests of a target; arguments that use it."""

from argparse import Namespace
from pathlib import Path

import pytest

from slime.engines.servers import RolloutServers
from tests.engines.conftest import model_folder, servers
from tests.engines.real_servers import make_args

__all__ = ["args", "model_folder", "servers"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "flags(*words): further flags of the run's arguments")


@pytest.fixture
def args(
    servers: RolloutServers, model_folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> Namespace:
    """Arguments of a run of its own that uses the shared router."""
    flags = request.node.get_closest_marker("flags")
    args = make_args(model_folder, tmp_path, *(flags.args if flags else ()))
    args.sglang_router_ip = servers.args.sglang_router_ip
    args.sglang_router_port = servers.args.sglang_router_port
    return args
