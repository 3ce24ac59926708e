"""One engine with a copy of the weights of its own, behind a router, for all tests of a target."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slime.engines.pull_weights_plugin import VARIABLE
from slime.engines.servers import RolloutServers
from tests.engines.conftest import model_folder
from tests.engines.real_servers import make_args, running

__all__ = ["model_folder"]


@pytest.fixture(scope="session")
def engine_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine") / "copy"


@pytest.fixture(scope="session")
def servers(
    model_folder: Path, engine_copy: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RolloutServers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(engine_copy))
        with running(make_args(model_folder, tmp_path_factory.mktemp("servers"))) as started:
            yield started
