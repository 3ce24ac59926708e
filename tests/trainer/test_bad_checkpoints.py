"""Checkpoints that are damaged, or of another model: named in a sentence, before training."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from slime.trainer.hf_to_megatron.common import CheckpointError

pytestmark = pytest.mark.usefixtures("single_rank")
INDEX = "model.safetensors.index.json"
FIRST, SECOND = (f"model-0000{i}-of-00002.safetensors" for i in (1, 2))


def _refused(args) -> str:
    """What loading says, without the path."""
    from slime.trainer.trainer import Trainer

    with pytest.raises(CheckpointError) as error:
        Trainer(args).load()
    assert "Traceback" not in str(error.value)
    return str(error.value)


def _sharded(source: Path, folder: Path) -> Path:
    """The model in two files with an index."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    half = len(names) // 2
    index = {}
    for file, part in ((FIRST, names[:half]), (SECOND, names[half:])):
        save_file({name: tensors[name] for name in part}, folder / file)
        index |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def _break_off(folder: Path) -> None:
    (folder / SECOND).write_bytes((folder / SECOND).read_bytes()[:-100])


def _no_json(folder: Path) -> None:
    (folder / INDEX).write_text("{")


def _no_map(folder: Path) -> None:
    (folder / INDEX).write_text("{}")


def _wrong_place(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["model.embed_tokens.weight"] = SECOND
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (_break_off, f"{SECOND} is damaged, copy it again"),
        (_no_json, f"{INDEX} cannot be read"),
        (_no_map, f"{INDEX} cannot be read"),
        (
            _wrong_place,
            f"{SECOND} lacks 'model.embed_tokens.weight', which the index says",
        ),
    ],
)
def test_a_damaged_hugging_face_checkpoint_is_named(harm, message, hf_model, args_for, tmp_path):
    folder = _sharded(hf_model(), tmp_path / "model")
    harm(folder)
    said = _refused(args_for(folder))
    assert said.count(message) == 1, said


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"vocab_size": 120},
            "embed_tokens.weight has 101 rows, the model's vocabulary 120",
        ),
        ({"num_hidden_layers": 1}, "model.layers.1.mlp.up_proj.weight: in the checkpoint, not in"),
        ({"num_hidden_layers": 3}, "no tensor 'model.layers.2.input_layernorm.weight'"),
        ({"hidden_size": 128}, "final_layernorm.weight: [64] in the checkpoint, [128] in the"),
    ],
)
def test_a_config_that_does_not_fit_the_weights(change, message, hf_model, args_for, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(hf_model(), folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    assert message in _refused(args_for(folder))


@pytest.fixture(scope="module")
def saved(hf_model, args_for, tmp_path_factory):
    """(kind, tied) -> a torch_dist checkpoint of that model, trained once; made once."""
    from slime.trainer.trainer import Trainer

    made: dict[tuple[str, bool], Path] = {}

    def get(kind: str, tied: bool) -> Path:
        if (kind, tied) not in made:
            folder = tmp_path_factory.mktemp(kind)
            trainer = Trainer(args_for(hf_model(kind, tied), save=str(folder)))
            trainer.load()
            trainer.save(0)
            made[kind, tied] = folder
        return made[kind, tied]

    return get


@pytest.mark.parametrize("option", [{}, {"finetune": True}, {"no_load_optim": True}])
@pytest.mark.parametrize(
    ("kind", "tied", "messages"),
    [
        ("llama", True, ["decoder.layers.self_attention.q_layernorm.weight: not in the checkp"]),
        ("qwen3", False, ["output_layer.weight: in the checkpoint, not in the model"]),
        (
            "qwen3_deep",
            True,
            [
                "decoder.layers.mlp.linear_fc2.weight: [4, 64, 96] in the checkpoint, [2, 64, 96]",
                "decoder.layers.self_attention.k_layernorm.weight: [4, 32] in the checkpoint, [2,",
            ],
        ),
    ],
)
def test_a_checkpoint_of_another_model(kind, tied, messages, option, hf_model, args_for, saved):
    said = _refused(args_for(hf_model(), load=str(saved(kind, tied)), **option))
    assert "is of another model than --hf-checkpoint" in said
    assert all(message in said for message in messages), said


def test_what_the_model_and_what_the_optimizer_lack_is_told_at_once(hf_model, args_for, tmp_path):
    from slime.trainer.trainer import Trainer

    source = args_for(hf_model("llama"), save=str(tmp_path), no_save_optim=True)
    trainer = Trainer(source)
    trainer.load()
    trainer.save(0)
    said = _refused(args_for(hf_model(), load=str(tmp_path)))
    assert "q_layernorm.weight: not in the checkpoint" in said
    assert "holds no optimizer state; use --no-load-optim" in said


def test_a_checkpoint_of_another_vocabulary(hf_model, args_for, saved, tmp_path):
    """Its rows alone do not tell: they may be padding."""
    folder = tmp_path / "saved"
    shutil.copytree(saved("qwen3", True), folder)
    common = torch.load(folder / "iter_0000000" / "common.pt", weights_only=False)
    assert common["vocab_size"] == 101
    torch.save({**common, "vocab_size": 99}, folder / "iter_0000000" / "common.pt")
    (folder / "iter_0000000" / "manifest.json").unlink()
    said = _refused(args_for(hf_model(), load=str(folder)))
    assert "a vocabulary of 99 tokens, the model has 101" in said


@pytest.mark.parametrize("name", ["__0_0.distcp", "common.pt", ".metadata", "metadata.json"])
@pytest.mark.parametrize("how", ["gone", "cut"])
def test_damage_is_a_sentence_also_without_a_manifest(
    name, how, hf_model, args_for, saved, tmp_path
):
    """As in checkpoints that Megatron itself has written."""
    folder = tmp_path / "saved"
    shutil.copytree(saved("qwen3", True), folder)
    (folder / "iter_0000000" / "manifest.json").unlink()
    file = folder / "iter_0000000" / name
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    said = _refused(args_for(hf_model(), load=str(folder)))
    where = {"metadata.json": "is not a complete checkpoint", "common.pt": "common.pt is missing"}
    gone = where.get(name) if how == "gone" else None
    assert (gone or "cannot be read, it is damaged: ") in said
    assert len(said.splitlines()) == 1
