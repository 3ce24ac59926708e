"""Supervised rollouts: conversations of a file, masked; the oracle is the text itself."""

import json

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from slime.data.source import RolloutDataSourceWithBuffer
from slime.rollout.errors import RolloutError
from slime.rollout.sft_rollout import generate_rollout
from tests.engines.real_servers import make_args, save_model

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
)


@pytest.fixture
def sft_args(tmp_path, request):
    """Arguments with a character tokenizer of ChatML, for conversations `request.param`."""
    model = save_model(tmp_path / "model")
    characters = sorted({*TEMPLATE, *"abcdefghijklmnopqrstuvwxyz+=0123456789 "})
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(characters)}, merges=[]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(model)
    args = make_args(model, tmp_path, "--n-samples-per-prompt", "1", "--loss-type", "sft_loss")
    data = tmp_path / "chats.jsonl"
    data.write_text("".join(json.dumps({"input": chat}) + "\n" for chat in request.param))
    args.prompt_data, args.label_key, args.rollout_batch_size = str(data), None, 2
    return args, tokenizer


def chat(*texts):
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]


CHATS = [chat("1+1=", "2"), chat("a", "b", "c", "d")]


@pytest.mark.parametrize("sft_args", [CHATS], indirect=True)
def test_conversations_become_samples(sft_args):
    args, tokenizer = sft_args
    output = generate_rollout(args, 0, RolloutDataSourceWithBuffer(args))
    trained = [["2<|im_end|>"], ["b<|im_end|>", "d<|im_end|>"]]
    for (sample,), messages, texts in zip(output.samples, CHATS, trained, strict=True):
        sample.check_alignment()
        rendered = tokenizer.apply_chat_template(messages, tokenize=False)
        assert tokenizer.decode(sample.tokens).replace(" ", "") == rendered
        response = sample.tokens[-sample.response_length :]
        assert sample.loss_mask[0] == 1
        kept = [t for t, m in zip(response, sample.loss_mask, strict=True) if m]
        assert tokenizer.decode(kept).replace(" ", "") == "".join(texts)
        assert (sample.reward, sample.status) == (0.0, sample.Status.COMPLETED)
        assert sample.rollout_log_probs is None


@pytest.mark.parametrize(
    ("sft_args", "message"),
    [
        (["1+1="], "sample 0 is a text"),
        ([chat("a"), chat("a")], "sample 0 has no token to train on"),
    ],
    indirect=["sft_args"],
)
def test_what_cannot_be_trained_on_is_named(sft_args, message):
    args, _ = sft_args
    with pytest.raises(RolloutError, match=message):
        generate_rollout(args, 0, RolloutDataSourceWithBuffer(args))


@pytest.mark.parametrize("sft_args", [CHATS], indirect=True)
def test_there_is_nothing_to_evaluate(sft_args):
    with pytest.raises(RolloutError, match="generates nothing"):
        generate_rollout(sft_args[0], 0, None, evaluation=True)
