"""What the machine and the disk say: devices, labels, paths."""

from pathlib import Path

import pytest

from slime.arguments import device, labels
from slime.arguments.device import detect_device
from slime.arguments.facts import absolute_path
from slime.arguments.labels import is_label, label_path, target_of


@pytest.mark.parametrize(
    ("nodes", "visible", "cuda_line", "expected"),
    [
        (["nvidia0", "nvidiactl"], None, "cuda: Optional[str] = '12.9'", "cuda"),
        (["nvidia0"], "0", "cuda = '12.9'", "cuda"),
        (["nvidia0"], "", "cuda = '12.9'", "cpu"),
        (["nvidia0"], "-1", "cuda = '12.9'", "cpu"),
        (["nvidia0"], None, "cuda: Optional[str] = None", "cpu"),
        (["nvidia0"], None, None, "cuda"),
        (["nvidiactl", "nvidia-uvm"], None, "cuda = '12.9'", "cpu"),
        ([], None, "cuda = '12.9'", "cpu"),
    ],
)
def test_device(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    nodes: list[str],
    visible: str | None,
    cuda_line: str | None,
    expected: str,
) -> None:
    for node in nodes:
        (tmp_path / node).touch()
    version = tmp_path / "version.py"
    version.write_text(f"__version__ = '2'\n{cuda_line}\n")
    monkeypatch.setattr(device, "find_on_path", lambda _: version if cuda_line else None)
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert detect_device(environment, dev=tmp_path) == expected


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("//examples/quickstart:model", True),
        ("//examples/quickstart", True),
        ("//examples/quickstart:data/train.jsonl", True),
        ("//:all", True),
        ("/examples/quickstart:model", False),
        ("examples/quickstart:model", False),
        ("//", False),
        ("///x", False),
        ("//a b", False),
    ],
)
def test_what_is_a_label(text: str, is_one: bool) -> None:
    assert is_label(text) is is_one


def test_a_label_is_looked_up_beside_the_program_then_in_bazel_bin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, workspace = tmp_path / "runfiles", tmp_path / "workspace"
    monkeypatch.setattr(labels, "__file__", str(program / "slime/arguments/labels.py"))
    environment = {"BUILD_WORKSPACE_DIRECTORY": str(workspace)}
    assert label_path("//some/pkg:model", environment) is None

    built = workspace / "bazel-bin/some/pkg/model"
    built.mkdir(parents=True)
    assert label_path("//some/pkg:model", environment) == built
    assert label_path("//some/pkg:model", {}) is None

    beside = program / "some/pkg/model"
    beside.mkdir(parents=True)
    assert label_path("//some/pkg:model", environment) == beside
    assert (
        label_path("//some/pkg/model", environment) is None
    )  # the target model of the package model


def test_a_label_keeps_its_slice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "__file__", str(tmp_path / "slime/arguments/labels.py"))
    (tmp_path / "pkg/data").mkdir(parents=True)
    assert absolute_path("//pkg:data@[0:3]", {}) == f"{tmp_path}/pkg/data@[0:3]"


def test_the_target_to_build_is_the_directory() -> None:
    assert target_of("//a/b:data/train.jsonl") == "//a/b:data"
    assert target_of("//a/b:data@[0:3]") == "//a/b:data"
    assert target_of("//a/b") == "//a/b"


def test_paths_start_where_the_user_is(tmp_path: Path) -> None:
    environment = {"BUILD_WORKING_DIRECTORY": "/user"}
    assert absolute_path("a/../b", environment) == "/user/b"
    assert absolute_path("/a/x", environment) == "/a/x"
    assert absolute_path("a", {}) == str(tmp_path / "a")
