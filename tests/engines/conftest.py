"""One engine behind a router for all tests of a target."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.engines.servers import RolloutServers
from tests.engines.real_servers import make_args, running, save_model


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def servers(
    model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RolloutServers]:
    with running(make_args(model_folder, tmp_path_factory.mktemp("servers"))) as started:
        yield started
