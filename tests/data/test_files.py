"""Files of samples: whole or absent, without pickle, and dumps of rollouts."""

import json
from pathlib import Path

import numpy as np
import pytest

from slime.arguments.errors import ConfigError
from slime.data.atomic_file import write_atomically
from slime.data.debug_dump import load_debug_rollout_data, save_debug_rollout_data
from slime.data.sample_file import read_samples, write_samples
from slime.samples.sample import Sample


def make_sample(index: int, group: int | None = 0) -> Sample:
    sample = Sample(
        index=index, group_index=group, rollout_id=index, tokens=[1], prompt="p\n\u00e9"
    )
    sample.append_response_tokens(tokens=[2, 3], log_probs=[-0.1, -1 / 3], text="ab")
    sample.reward = 0.1 + 0.2
    sample.weight_version_spans = [("1", 0, 2)]
    return sample


def test_a_dump_gives_back_every_bit(tmp_path: Path) -> None:
    samples = [make_sample(0), make_sample(1)]
    samples[0].rollout_routed_experts = np.arange(8, dtype=np.int32).reshape(2, 2, 2)
    samples[0].multimodal_train_inputs = {"pixels": np.float32([[0.1]]), "grid": [np.int64(3)]}
    samples[1].own_attribute = {"deep": [{"array": np.arange(3)}]}
    template = str(tmp_path / "dumps" / "rollout_{rollout_id}.json")
    save_debug_rollout_data(template, [[samples[0]], [samples[1]]], rollout_id=3, evaluation=False)
    back = load_debug_rollout_data(template, rollout_id=3)
    assert [s.rollout_log_probs for s in back] == [[-0.1, -1 / 3]] * 2  # exact
    assert back[0].reward == 0.1 + 0.2 and back[0].weight_version_spans == [("1", 0, 2)]
    np.testing.assert_array_equal(back[0].rollout_routed_experts, np.arange(8).reshape(2, 2, 2))
    assert back[0].multimodal_train_inputs["pixels"].dtype == np.float32
    assert back[0].multimodal_train_inputs["grid"] == [3]
    np.testing.assert_array_equal(back[1].own_attribute["deep"][0]["array"], [0, 1, 2])
    plain = [s.to_dict() for s in back]
    assert plain[1]["tokens"] == [1, 2, 3] and plain[1]["prompt"] == "p\n\u00e9"


def test_evaluations_get_names_of_their_own(tmp_path: Path) -> None:
    template = str(tmp_path / "{rollout_id}.json")
    save_debug_rollout_data(template, {"set": [make_sample(0)]}, rollout_id=1, evaluation=True)
    assert [p.name for p in tmp_path.iterdir()] == ["eval_1.json"]
    with pytest.raises(ConfigError, match=r"1\.json"):
        load_debug_rollout_data(template, rollout_id=1)


def test_subsampling_keeps_whole_groups(tmp_path: Path) -> None:
    template = str(tmp_path / "{rollout_id}.json")
    samples = [make_sample(i, group=g) for i, g in enumerate([0, 1, 0, 2, 1, 3])]
    save_debug_rollout_data(template, samples, rollout_id=0, evaluation=False)

    def indices(ratio: float) -> list[int | None]:
        loaded = load_debug_rollout_data(template, rollout_id=0, subsample_ratio=ratio)
        return [sample.index for sample in loaded]

    assert indices(0.5) == [0, 1, 2, 4]
    assert indices(0.01) == [0, 2]
    assert indices(1.0) == [0, 1, 2, 3, 4, 5]


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    sample = make_sample(0)
    sample.metadata = {"image": object()}
    with pytest.raises(TypeError, match=r"samples\.0\.metadata\.image: a object"):
        write_samples(tmp_path / "x.json", [sample], {})
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_two_writes_do_not_mix(tmp_path: Path) -> None:
    """A crash between the two files of a second write leaves the first one readable."""
    path = tmp_path / "x.json"
    sample = make_sample(0)
    sample.own = np.zeros(2)
    write_samples(path, [sample], {"n": 1})
    old = path.read_bytes()
    sample.own = np.ones(2)
    write_samples(path, [sample], {"n": 2})
    path.write_bytes(old)
    samples, header = read_samples(path)
    np.testing.assert_array_equal(samples[0].own, [0, 0])
    assert header == {"n": 1}


def test_a_failing_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, b"old")

    def full_disk(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


def test_text_files_hold_plain_json(tmp_path: Path) -> None:
    write_samples(tmp_path / "x.json", [[make_sample(0)]], {})
    document = json.loads((tmp_path / "x.json").read_text())
    assert document["samples"][0][0]["$sample"]["status"] == "pending"
