"""Loss masks of multi-turn chats: which tokens of a rendered conversation the model itself wrote.

The ids are always those of the chat template over the whole conversation; turns are never rendered
one by one, because templates look at the neighbours (consecutive tool results share one turn,
reasoning is dropped from earlier ones). Trained are the tokens after the generation prompt, up to
and including the end-of-turn token; the line break that a template puts behind it is nobody's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
IdsAndMask = tuple[list[int], list[int]]
Span = tuple[int, int]


@dataclass(frozen=True)
class TurnFormat:
    """How a template writes an assistant turn.

    Attributes:
        headers: What an assistant turn begins with (any of them).
        end: What it ends with; trained, for the model has to write it.
        prompts: What may follow a header and still belongs to the generation prompt, longest first.
    """

    headers: tuple[str, ...]
    end: str
    prompts: tuple[str, ...] = ()


_CHATML = TurnFormat(("<|im_start|>assistant\n",), "<|im_end|>")
# Its generation prompt opens the reasoning, or with enable_thinking=False opens and closes it.
_QWEN3_5 = TurnFormat(_CHATML.headers, _CHATML.end, ("<think>\n\n</think>\n\n", "<think>\n"))
# After the results of tools the answer goes on without a header of its own.
_R1_DISTILL = TurnFormat(
    ("<｜Assistant｜>", "<｜tool▁outputs▁end｜>"),  # noqa: RUF001 - the tokens are written so
    "<｜end▁of▁sentence｜>",  # noqa: RUF001
    ("<think>\n",),
)


class MultiTurnLossMaskGenerator:
    """Token ids and loss masks of conversations, for one tokenizer.

    A message with `step_loss_mask: 0` is not trained on, though the model wrote it.
    """

    def __init__(self, tokenizer: Any, tokenizer_type: str = "qwen") -> None:
        """Nothing is rendered yet.

        Args:
            tokenizer: A Hugging Face tokenizer of the fast kind (it must give offsets).
            tokenizer_type: qwen (2, 2.5), qwen3, qwen3_5 or distill_qwen (`--loss-mask-type`).

        Raises:
            ValueError: There is no such type.
        """
        self.tokenizer = tokenizer
        self.tokenizer_type = tokenizer_type
        methods: dict[str, Callable[..., IdsAndMask]] = {
            "qwen": self.gen_multi_turn_loss_mask_qwen,
            "qwen3": self.gen_multi_turn_loss_mask_qwen3,
            "qwen3_5": self.gen_multi_turn_loss_mask_qwen3_5,
            "distill_qwen": self.gen_multi_turn_loss_mask_distill_qwen,
        }
        if tokenizer_type not in methods:
            known = ", ".join(methods)
            raise ValueError(f"--loss-mask-type = {tokenizer_type!r}: must be one of {known}")
        self._generate = methods[tokenizer_type]

    def get_loss_mask(
        self, messages: list[Message], tools: list[dict[str, Any]] | None = None
    ) -> IdsAndMask:
        """Ids of the whole conversation, and 1 for each of them that is trained on, else 0.

        Raises:
            ValueError: The rendered text does not hold one assistant turn per assistant message
                (another type of template, or a message with the template's own marks in it), or
                the tokenizer gives no offsets.
        """
        return self._generate(messages, tools)

    def gen_multi_turn_loss_mask_qwen(
        self, messages: list[Message], tools: list[dict[str, Any]] | None = None
    ) -> IdsAndMask:
        """For the templates of Qwen2 and Qwen2.5."""
        return self._mask_of_text(self._render(messages, tools), messages, _CHATML)

    def gen_multi_turn_loss_mask_qwen3(
        self, messages: list[Message], tools: list[dict[str, Any]] | None = None
    ) -> IdsAndMask:
        """For the template of Qwen3: reasoning is the model's own text, where it is kept."""
        return self._mask_of_text(self._render(messages, tools), messages, _CHATML)

    def gen_multi_turn_loss_mask_qwen3_5(
        self, messages: list[Message], tools: list[dict[str, Any]] | None = None
    ) -> IdsAndMask:
        """For the template of Qwen3.5, whose generation prompt opens the reasoning."""
        return self._mask_of_text(self._render(messages, tools), messages, _QWEN3_5)

    def gen_multi_turn_loss_mask_distill_qwen(
        self, messages: list[Message], tools: list[dict[str, Any]] | None = None
    ) -> IdsAndMask:
        """For DeepSeek-R1-Distill-Qwen.

        Its template drops the reasoning of every answer. That of the last one is what such a model
        is to learn, so it is kept: generation prompt, the answer as it stands, end of sentence.
        """
        last = messages[-1]
        content = last.get("content") or ""
        if last["role"] != "assistant" or "</think>" not in content or last.get("tool_calls"):
            return self._mask_of_text(self._render(messages, tools), messages, _R1_DISTILL)
        prompt = self._render(messages[:-1], tools, add_generation_prompt=True)
        if prompt.endswith("<think>\n"):
            content = content.removeprefix("<think>\n")
        return self._mask_of_text(prompt + content + _R1_DISTILL.end, messages, _R1_DISTILL)

    def get_loss_mask_with_multimodal_alignment(
        self,
        messages: list[Message],
        input_ids: list[int],
        tools: list[dict[str, Any]] | None = None,
    ) -> IdsAndMask:
        """As `get_loss_mask`, for ids in which a processor has repeated the tokens of media.

        Args:
            messages: The conversation, media included.
            input_ids: What the processor made of it.
            tools: Of the conversation.

        Returns:
            `input_ids` and their mask.

        Raises:
            ValueError: `input_ids` differ from the rendered conversation by more than repetitions
                of tokens that are not trained on; also as `get_loss_mask`.
        """
        text_ids, text_mask = self.get_loss_mask(messages, tools)
        mask: list[int] = []
        for number, (token, trained) in enumerate(zip(text_ids, text_mask, strict=True)):
            if input_ids[len(mask) : len(mask) + 1] != [token]:
                break
            mask.append(trained)
            if trained or text_ids[number + 1 : number + 2] == [token]:
                continue
            while input_ids[len(mask) : len(mask) + 1] == [token]:
                mask.append(0)
        else:
            if len(mask) == len(input_ids):
                return list(input_ids), mask
        raise ValueError(
            f"the {len(input_ids)} input ids are not those of the conversation ({len(text_ids)} "
            f"tokens before media are expanded): they differ at {len(mask)}"
        )

    def get_response_lengths(self, loss_masks: list[list[int]]) -> list[int]:
        """For each mask, the number of tokens from the first trained one to the end."""
        return [len(mask) - mask.index(1) if 1 in mask else 0 for mask in loss_masks]

    def get_text_from_loss_mask(self, token_ids: list[int], loss_masks: list[int]) -> list[str]:
        """The trained texts, one per run of trained tokens."""
        runs: list[list[int]] = []
        before = 0
        for token, trained in zip(token_ids, loss_masks, strict=True):
            if trained and not before:
                runs.append([])
            if trained:
                runs[-1].append(token)
            before = trained
        return [str(self.tokenizer.decode(run)) for run in runs]

    def find_all_sublist_indices(self, main_list: list[int], sublist: list[int]) -> list[int]:
        """Every position at which `sublist` begins in `main_list`."""
        size = len(sublist)
        starts = range(len(main_list) - size + 1)
        return [start for start in starts if main_list[start : start + size] == sublist]

    def get_system_message_length(self) -> tuple[int, int]:
        """Tokens the template puts before a first user message, and in its generation prompt."""
        user = {"role": "user", "content": "x"}
        one, two = (len(self._ids(self._render([user] * n, None))) for n in (1, 2))
        asked = len(self._ids(self._render([user], None, add_generation_prompt=True)))
        return 2 * one - two, asked - one

    def _render(
        self,
        messages: list[Message],
        tools: list[dict[str, Any]] | None,
        add_generation_prompt: bool = False,
    ) -> str:
        text: str = self.tokenizer.apply_chat_template(
            messages, tools=tools, tokenize=False, add_generation_prompt=add_generation_prompt
        )
        return text

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def _mask_of_text(self, text: str, messages: list[Message], turns: TurnFormat) -> IdsAndMask:
        written = [message for message in messages if message["role"] == "assistant"]
        spans = _assistant_spans(text, turns)
        if len(spans) != len(written):
            raise ValueError(
                f"the conversation has {len(written)} assistant messages, its text {len(spans)} "
                f"assistant turns: is --loss-mask-type {self.tokenizer_type} that of the template, "
                "and do the messages hold marks of the template themselves?"
            )
        trained = [
            span
            for span, message in zip(spans, written, strict=True)
            if message.get("step_loss_mask", 1)
        ]
        if not getattr(self.tokenizer, "is_fast", True):
            name = type(self.tokenizer).__name__
            raise ValueError(f"{name} gives no offsets: loss masks need a fast tokenizer")
        encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return list(encoded["input_ids"]), _overlaps(encoded["offset_mapping"], trained)


def _assistant_spans(text: str, turns: TurnFormat) -> list[Span]:
    """Characters [start, end) of what the model wrote, turn by turn."""
    spans: list[Span] = []
    position = 0
    while True:
        found = [(text.find(header, position), header) for header in turns.headers]
        start, header = min((hit for hit in found if hit[0] >= 0), default=(-1, ""))
        if start < 0:
            return spans
        start += len(header)
        start += len(next((p for p in turns.prompts if text.startswith(p, start)), ""))
        end = text.find(turns.end, start)
        position = len(text) if end < 0 else end + len(turns.end)
        spans.append((start, position))


def _overlaps(offsets: list[Span], spans: list[Span]) -> list[int]:
    """1 for each token that shares a character with a span; both are in order."""
    mask = []
    remaining = iter(spans)
    span = next(remaining, None)
    for start, end in offsets:
        while span is not None and span[1] <= start:
            span = next(remaining, None)
        mask.append(int(span is not None and end > span[0] and start < span[1]))
    return mask
