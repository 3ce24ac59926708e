"""Supervised fine-tuning: the "rollout" is the data itself, with a loss on what the model wrote.

`--rollout-function-path slime.rollout.sft_rollout.generate_rollout --loss-type sft_loss
--debug-train-only`: no engine is started. The prompts are whole conversations (lists of messages
under `--input-key`), `--loss-mask-type` says how the chat template writes an assistant's turn.
"""

from argparse import Namespace
from functools import partial
from typing import Any

from slime.data.loss_masks import MultiTurnLossMaskGenerator
from slime.data.media import processor_inputs
from slime.rollout.base_types import RolloutFnTrainOutput
from slime.rollout.errors import RolloutError
from slime.rollout.generate_state import GenerateState
from slime.samples.packed import put
from slime.samples.sample import Sample


def generate_rollout(
    args: Namespace, rollout_id: int, data_buffer: Any, evaluation: bool = False
) -> RolloutFnTrainOutput:
    """The next `--rollout-batch-size` conversations, tokenized and masked.

    Raises:
        RolloutError: evaluation is asked for, a prompt is no list of messages, or nothing of a
            conversation is trained on.
        ValueError: the masks do not fit the template (see `MultiTurnLossMaskGenerator`).
    """
    if evaluation:
        raise RolloutError(
            "supervised fine-tuning generates nothing: leave out --eval-interval, or give "
            "--eval-function-path slime.rollout.sglang_rollout.generate_rollout"
        )
    state = GenerateState(args)
    masks = MultiTurnLossMaskGenerator(state.tokenizer, args.loss_mask_type)
    groups = data_buffer.get_samples(args.rollout_batch_size)
    for sample in (sample for group in groups for sample in group):
        _fill(masks, partial(_processed, state), sample)
    return RolloutFnTrainOutput(groups)


def _fill(masks: MultiTurnLossMaskGenerator, process: Any, sample: Sample) -> None:
    """Tokens, mask and text of one conversation; its prompt ends where training begins."""
    messages, tools = sample.prompt, sample.metadata.get("tools")
    if not isinstance(messages, list):
        raise RolloutError(
            f"sample {sample.index} is a text: supervised fine-tuning takes lists of messages "
            "(--input-key), without --apply-chat-template"
        )
    if sample.multimodal_inputs:
        ids = process(sample)
        ids, mask = masks.get_loss_mask_with_multimodal_alignment(messages, ids, tools)
    else:
        ids, mask = masks.get_loss_mask(messages, tools)
    (length,) = masks.get_response_lengths([mask])
    if length == 0:
        raise RolloutError(
            f"sample {sample.index} has no token to train on: it needs a message of the "
            "assistant without step_loss_mask 0"
        )
    if length == len(ids):
        raise RolloutError(f"sample {sample.index} begins with the assistant: there is no prompt")
    sample.response_length = length
    put(sample, "tokens", ids)
    put(sample, "loss_mask", mask[-length:])
    sample.response = "".join(masks.get_text_from_loss_mask(ids, mask))
    sample.reward = 0.0
    sample.status = Sample.Status.COMPLETED


def _processed(state: GenerateState, sample: Sample) -> list[int]:
    """Token ids with those of the media; what else the model needs goes on the sample."""
    text = state.tokenizer.apply_chat_template(
        sample.prompt, tools=sample.metadata.get("tools"), tokenize=False
    )
    inputs = state.processor(
        text=[text], return_tensors="np", **processor_inputs(sample.multimodal_inputs or {})
    )
    further = {k: v for k, v in inputs.items() if k not in ("input_ids", "attention_mask")}
    sample.multimodal_train_inputs = further or None
    return [int(token) for token in inputs["input_ids"][0]]
