"""One engine behind a router for all tests of a target."""

from tests.engines.conftest import model_folder, servers

__all__ = ["model_folder", "servers"]
