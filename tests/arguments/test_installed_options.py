"""Options read from source text, in the forms that SGLang and its router use."""

import sys
from pathlib import Path

import pytest

from slime.arguments import installed_options

SERVER = """
import a_module_that_does_not_exist

class ServerArgs:
    model_path: str
    dtype: str = "auto"

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--tool-call-parser", type=str)

class Other:
    not_an_option: int = 0
"""
FIELDS = """
class Parallel(Struct):
    tp_size: A[int, Arg(help="x", cli_name="--tensor-parallel-size", aliases=["--tp-size"])] = 1
    pp_async: A[Optional[bool], "help"] = None
    computed = Derived(default=None)
"""
ROUTER = """
class RouterArgs:
    policy: str = "cache_aware"

    @staticmethod
    def add_cli_args(parser, use_router_prefix=False):
        prefix = "router-" if use_router_prefix else ""
        group.add_argument(f"--{prefix}mini-lb", action="store_true")
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = tmp_path / "sglang/srt/arg_groups/fields"
    fields.mkdir(parents=True)
    (tmp_path / "sglang/srt/server_args.py").write_text(SERVER)
    (fields / "parallel.py").write_text(FIELDS)
    (tmp_path / "sglang_router").mkdir()
    (tmp_path / "sglang_router/router_args.py").write_text(ROUTER)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])


def test_sglang(fake: None) -> None:
    assert installed_options.sglang_options.__wrapped__() == {
        "model_path": "str",
        "dtype": "str",
        "tool_call_parser": "",
        "tensor_parallel_size": "int",
        "tp_size": "int",
        "pp_async": "Optional[bool]",
    }


def test_router(fake: None) -> None:
    assert installed_options.router_options.__wrapped__() == {"policy": "str", "mini_lb": ""}


def test_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    assert installed_options.sglang_options.__wrapped__() == {}
    assert installed_options.router_options.__wrapped__() == {}
