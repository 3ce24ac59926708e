"""Multi-token prediction: names, the loss by plain Hugging Face layers, and a policy it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hf_models import HIDDEN, OWN, with_prediction_layer
from safetensors.torch import load_file

pytestmark = pytest.mark.usefixtures("single_rank")


@pytest.fixture(scope="module")
def mimo(hf_model, tmp_path_factory) -> Path:
    return with_prediction_layer(
        hf_model("qwen2", False), tmp_path_factory.mktemp("mimo") / "model", "mimo"
    )


def _assert_same(folder: Path, original: dict[str, torch.Tensor]) -> None:
    found = {n: t for file in folder.glob("*.safetensors") for n, t in load_file(file).items()}
    assert found.keys() == original.keys()
    assert all(torch.equal(found[name], value) for name, value in original.items())


@pytest.mark.parametrize("family", OWN)
def test_prediction_layers_come_back_bit_for_bit(family, hf_model, args_for, tmp_path):
    from slime.trainer.torch_dist_to_hf import convert
    from slime.trainer.trainer import Trainer

    source = hf_model("qwen2" if family == "mimo" else family, False)
    folder = with_prediction_layer(source, tmp_path / "model", family)
    options = {"save": str(tmp_path / "save"), "no_save_optim": True}
    trainer = Trainer(args_for(folder, enable_mtp_training=True, **options))
    trainer.load()
    trainer.save_hf(tmp_path / "out")
    original = load_file(folder / "model.safetensors")
    _assert_same(tmp_path / "out", original)
    without = Trainer(args_for(folder))  # the layers are left alone, and copied
    without.load()
    names = {name for bucket in without.hf_weight_buckets(1 << 30) for name, _ in bucket}
    without.save_hf(tmp_path / "copy")
    _assert_same(tmp_path / "copy", original)
    assert names < original.keys()

    trainer.save(0)
    trainer.finish_save()
    convert(tmp_path / "save", tmp_path / "trained", folder)
    _assert_same(tmp_path / "trained", original)
    other = Trainer(args_for(folder, **(options | {"save": str(tmp_path / "other")})))
    other.load()
    other.save(0)
    other.finish_save()
    convert(tmp_path / "other", tmp_path / "untrained", folder)
    _assert_same(tmp_path / "untrained", original)


def _hf_prediction_loss(qwen2: Path, mimo: Path, rollout, temperature: float) -> float:
    """Of the first step, by Hugging Face's layers: one sequence at a time."""
    import transformers
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer, Qwen2RMSNorm

    model = transformers.AutoModelForCausalLM.from_pretrained(qwen2, dtype=torch.float32)
    tensors = load_file(mimo / "model.safetensors")
    own = {n.removeprefix("model.mtp_layers.0."): t for n, t in tensors.items() if "mtp" in n}
    layer = Qwen2DecoderLayer(model.config, layer_idx=0)
    layer.load_state_dict({n: t for n, t in own.items() if n in layer.state_dict()})
    norms = {}
    for name in ("token_layernorm", "hidden_layernorm", "final_layernorm"):
        norms[name] = Qwen2RMSNorm(HIDDEN, eps=model.config.rms_norm_eps)
        norms[name].weight.data = own[f"{name}.weight"]
    total, samples = 0.0, rollout["global_batch_sizes"][0]
    for i in range(samples):
        ids, n = torch.as_tensor(rollout["tokens"][i]), rollout["response_lengths"][i]
        hidden = model.model(input_ids=ids[None]).last_hidden_state[:, :-1]
        token = model.model.embed_tokens(ids[None, 1:])
        both = [norms["hidden_layernorm"](hidden), norms["token_layernorm"](token)]
        x = torch.cat(both, -1) @ own["input_proj.weight"].T
        places = torch.arange(len(ids) - 1)[None]
        causal = torch.full((len(ids) - 1, len(ids) - 1), float("-inf")).triu(1)[None, None]
        x = layer(
            x,
            attention_mask=causal,
            position_ids=places,
            position_embeddings=model.model.rotary_emb(x, places),
        )
        logits = model.lm_head(norms["final_layernorm"](x))[0] / temperature
        log_probs = logits.log_softmax(-1)
        mask, first = torch.as_tensor(rollout["loss_masks"][i]), len(ids) - n
        for j in range(1, n):  # the first token of a response has no place before it
            at = first + j
            total -= float(log_probs[at - 2, ids[at]] * mask[j]) / float(mask.sum()) / samples
    return total


def test_the_loss_is_that_of_hugging_face_layers(hf_model, mimo, args_for, rollout_of):
    from slime.trainer.trainer import Trainer

    args, rollout = args_for(mimo, enable_mtp_training=True), rollout_of(0, steps=1)
    trainer = Trainer(args)
    trainer.load()
    with torch.no_grad():
        want = _hf_prediction_loss(
            hf_model("qwen2", False), mimo, rollout, args.rollout_temperature
        )
    assert trainer.train(0, rollout)["mtp_loss"] == pytest.approx(want, rel=1e-5)


def test_the_layers_learn_and_the_policy_does_not_notice(mimo, args_for, rollout_of):
    from slime.trainer.trainer import Trainer

    weights, losses = [], []
    for enabled in (True, False):
        args = args_for(mimo, enable_mtp_training=enabled, clip_grad=1e9, lr=1e-3)
        trainer = Trainer(args)
        trainer.load()
        losses += [trainer.train(i, rollout_of(0)).get("mtp_loss") for i in range(4)]
        weights.append({n: t.clone() for b in trainer.hf_weight_buckets(1 << 30) for n, t in b})
    assert losses[3] < losses[0] and losses[4:] == [None] * 4
    with_layers, without = weights
    assert all(torch.equal(with_layers[name], value) for name, value in without.items())
    before = load_file(mimo / "model.safetensors")
    new = with_layers.keys() - without.keys()
    assert len(new) > 10 and not any(torch.equal(with_layers[n], before[n]) for n in new)
