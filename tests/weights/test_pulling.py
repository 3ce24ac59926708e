"""An engine whose copy of the weights does not follow the deltas: caught up, or refused."""

import json
import shutil
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slime.weights.delta import DeltaWeightUpdater
from slime.weights.engine_calls import EngineAddress
from slime.weights.errors import EnginesLeftBehind
from slime.weights.pulling import MANIFEST
from slime.weights.updater import versions
from tests.weights.test_transports import checksums, difference_to, make_model, weights_of

Send = Callable[..., None]


def lose(args: Namespace, folder: str) -> None:
    """A shared folder that engines do not see."""
    (Path(folder) / MANIFEST).unlink()


@pytest.fixture
def args(model_folder: Path) -> Namespace:
    return Namespace(
        hf_checkpoint=str(model_folder),
        update_weight_delta_encoding="xor",
        update_weight_delta_checksum="xxh3-128",
        update_weight_disk_keep_files=False,
        custom_update_weight_post_write_path=None,
    )


@pytest.fixture
def send(servers, args, tmp_path) -> Iterator[Send]:
    """`send(version)`: to the engine, or to the `engines` given. Every version has its own
    weights."""
    updater = DeltaWeightUpdater(
        args, tmp_path / "shared", tmp_path / "local", checksums=checksums, timeout=30.0
    )
    present = [EngineAddress(url) for url in servers.engine_urls]

    def to(version: int, engines: list[EngineAddress] | None = None) -> None:
        named = weights_of(make_model(seed=version))
        updater.update(present if engines is None else engines, [named[:9], named[9:]], version)

    yield to
    updater.close()


def manifest(tmp_path: Path, version: int) -> dict:
    return json.loads((tmp_path / "shared" / f"weights_{version:08d}" / MANIFEST).read_text())


def test_an_engine_that_missed_a_version_pulls_both(servers, send, tmp_path):
    send(1)
    send(2, engines=[])
    send(3)
    assert difference_to(make_model(seed=3), servers) < 1e-5
    assert manifest(tmp_path, 3)["base"] == 2


@pytest.mark.parametrize("how", ["new", "damaged", "of another run"])
def test_an_engine_whose_copy_is_of_no_use_is_caught_up(servers, send, engine_copy, tmp_path, how):
    send(1)
    if how == "new":
        shutil.rmtree(engine_copy)
    elif how == "damaged":
        file = sorted(engine_copy.glob("*.safetensors"))[0]
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    else:
        (engine_copy / "weight_version").write_text("2 another")  # the number of what comes
    send(2)
    assert difference_to(make_model(seed=2), servers) < 1e-5
    # From the first version, which is a whole one, where the copy said that it does not fit.
    assert manifest(tmp_path, 2)["base"] == (None if how == "damaged" else 1)
    send(3)
    assert difference_to(make_model(seed=3), servers) < 1e-5
    assert manifest(tmp_path, 3)["base"] == 2


def test_an_engine_that_joins_late_gets_the_present_version(servers, send, engine_copy, tmp_path):
    send(1)
    send(2, engines=[])
    before = manifest(tmp_path, 2)
    shutil.rmtree(engine_copy)
    send(2)
    assert difference_to(make_model(seed=2), servers) < 1e-5
    assert (before["base"], manifest(tmp_path, 2)["base"]) == (1, None)


def test_an_engine_that_is_not_reached_carries_no_version(servers, send, args):
    send(1)
    args.custom_update_weight_post_write_path = "tests.weights.test_pulling.lose"
    with pytest.raises(EnginesLeftBehind, match="refused /pull_weights: .*is not there"):
        send(2)
    (found,) = versions([EngineAddress(url) for url in servers.engine_urls]).values()
    assert found == "2-incomplete"
    args.custom_update_weight_post_write_path = None
    send(2)
    assert difference_to(make_model(seed=2), servers) < 1e-5
