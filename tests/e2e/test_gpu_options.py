"""Every GPU test's options fit its published model and a machine of eight GPUs."""

import importlib
import inspect
import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest

from slime.arguments import parse_args
from slime.arguments.errors import ConfigError
from slime.launch import commands
from tests.e2e.published_models import write_models
from tools.build_files import targets_of

ROOT = Path(os.environ.get("SLIME_RUNFILES", "."))
TARGETS = targets_of(ROOT, Path("tests/e2e"))
TESTS = [t.attributes["name"] for t in TARGETS if t.rule in ("e2e_test", "gpu_test")]
PROMPT = '{"prompt": [{"role": "user", "content": "1+1="}], "label": "2"}\n'


class Started(Exception):
    """Instead of a run: its options."""


def start(words: list[str], *args: Any, **options: Any) -> NoReturn:
    raise Started(words)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configs of the models, one prompt of each data set; nothing is downloaded or started."""
    write_models(tmp_path / "models")
    for name in ("dapo-math-17k", "aime-2024"):
        folder = tmp_path / "datasets" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.jsonl").write_text(PROMPT * 64)
    # Stands for what prepare() would convert.
    shutil.copytree(tmp_path / "models/Qwen3-0.6B", tmp_path / "Qwen3-0.6B_torch_dist")
    monkeypatch.setenv("SLIME_CACHE", str(tmp_path))
    monkeypatch.setattr(commands, "exec_command", lambda *args, **options: None)
    monkeypatch.setattr(commands, "execute_train", start)
    return tmp_path


def options_of(name: str) -> list[str]:
    """What the first run of a test would be given."""
    module = importlib.import_module(f"tests.e2e.{name}")
    functions = dict(inspect.getmembers(module, inspect.isfunction))
    run = functions.get("execute") or next(f for n, f in functions.items() if n.startswith("test_"))
    with pytest.raises(Started) as started:
        run(*["127.0.0.1:1" for _ in inspect.signature(run).parameters])
    return started.value.args[0]


def write_images(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    folder.mkdir()
    images = {"problem": ["what?"] * 64, "answer": ["2"] * 64, "images": [["x.png"]] * 64}
    write_table(pyarrow.table(images), folder / "train.parquet")


@pytest.mark.parametrize("name", TESTS)
def test_options_are_right(name: str, cache: Path) -> None:
    if name == "test_qwen3_vl_image":
        write_images(cache / "datasets/geo3k_imgurl")
    words = [*options_of(name), "--device=cuda", "--num-gpus-per-node=8"]
    try:
        parse_args(argv=words)
    except ConfigError as error:
        assert [str(problem) for problem in error.problems] == []
