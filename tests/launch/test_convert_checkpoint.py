"""A Hugging Face checkpoint becomes a torch_dist one: the same numbers, split over two ranks."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from transformers import LlamaConfig, LlamaForCausalLM

from examples.quickstart.tokenizer import build_tokenizer
from slime.launch.commands import convert_checkpoint

ROW_SPLIT = {  # of one rank's names to Hugging Face's, where the layouts agree
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "output_layer.weight": "lm_head.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
}


@pytest.fixture
def model(tmp_path: Path) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 100}
    config = LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2)
    model = LlamaForCausalLM(config)
    model.save_pretrained(tmp_path / "hf")
    build_tokenizer().save_pretrained(tmp_path / "hf")
    return model


def test_two_ranks_hold_the_weights_of_one_model(model: LlamaForCausalLM, tmp_path: Path) -> None:
    layout = "--tensor-model-parallel-size 2"
    where = {"dir_dst": str(tmp_path), "hf_checkpoint": str(tmp_path / "hf")}
    folder = convert_checkpoint("tiny", "llama", 2, extra_args=layout, **where)
    assert Path(folder, "latest_checkpointed_iteration.txt").read_text().strip() == "0"
    reader = dcp.FileSystemReader(Path(folder, "iter_0000000"))
    sizes = {
        name: info.size
        for name, info in reader.read_metadata().state_dict_metadata.items()
        if name.removeprefix("model.") in ROW_SPLIT
    }
    assert len(sizes) == len(ROW_SPLIT)
    found = {name: torch.empty(size) for name, size in sizes.items()}
    dcp.load(found, storage_reader=reader)
    for name, tensor in found.items():
        expected = model.state_dict()[ROW_SPLIT[name.removeprefix("model.")]]
        assert torch.equal(tensor[: len(expected)], expected), name  # vocabularies are padded


def test_wrong_options_are_said_once_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        convert_checkpoint("x", None, 1, dir_dst=str(tmp_path), hf_checkpoint=str(tmp_path / "no"))
    assert list(tmp_path.iterdir()) == []
    code = "from slime.launch.convert_checkpoint import main; raise SystemExit(main())"
    command = [sys.executable, "-c", code, f"--hf-checkpoint={tmp_path}/no"]
    env = {"RANK": "0", "WORLD_SIZE": "1", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 2
    assert "--hf-checkpoint" in done.stderr and "no such directory" in done.stderr
