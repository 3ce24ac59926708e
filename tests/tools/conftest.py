"""Fixtures of these tests."""

from tests.tools.wheel_index import index, make_wheel

__all__ = ["index", "make_wheel"]
