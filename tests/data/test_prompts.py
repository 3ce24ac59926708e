"""Reading of prompt files, and prompt sets."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime.arguments.errors import ConfigError
from slime.data.prompts import Dataset, filter_long_prompt, read_file
from slime.samples.sample import Sample


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("", [0, 1, 2, 3, 4]),
        ("@[1:3]", [1, 2]),
        ("@[:2]", [0, 1]),
        ("@[3:]", [3, 4]),
        ("@[-2:]", [3, 4]),
        ("@[2:99]", [2, 3, 4]),
    ],
)
def test_slices(write_jsonl: Callable[..., str], part: str, expected: list[int]) -> None:
    path = write_jsonl([{"n": n} for n in range(5)])
    assert [row["n"] for row in read_file(path + part)] == expected


def test_blank_lines_are_no_rows_and_bad_lines_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": \n[1]\n\xff\n{"a": 2}')
    with pytest.raises(ConfigError) as caught:
        read_file(path)
    assert [p.option for p in caught.value.problems] == [f"{path}:{n}" for n in (3, 4, 5)]
    assert [row["a"] for row in read_file(f"{path}@[0:1]")] == [1]  # outside the slice: unread


@pytest.mark.parametrize(
    ("name", "message"), [("missing.jsonl", "no such file"), ("data.csv", "use jsonl or parquet")]
)
def test_unreadable_files(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "data.csv").write_text("a,b\n")
    with pytest.raises(ConfigError, match=message):
        read_file(tmp_path / name)


def test_parquet_equals_jsonl(tmp_path: Path, write_jsonl: Callable[..., str]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"text": "a", "meta": {"k": [1, 2]}}, {"text": "b", "meta": {"k": [3]}}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    assert list(read_file(tmp_path / "rows.parquet")) == list(read_file(write_jsonl(rows)))
    assert list(read_file(f"{tmp_path}/rows.parquet@[1:2]")) == rows[1:]


def test_chat_template_label_tools_and_metadata(
    write_jsonl: Callable[..., str], tokenizer: Any
) -> None:
    rows = [
        {"q": "hi", "a": 0, "metadata": {"source": "x"}, "tools": json.dumps([{"name": "f"}])},
        {"q": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "a": "b"},
    ]
    data = Dataset(
        write_jsonl(rows),
        tokenizer,
        None,
        None,
        prompt_key="q",
        label_key="a",
        tool_key="tools",
        apply_chat_template=True,
        apply_chat_template_kwargs={"prefix": "!"},
    )
    assert [s.prompt for s in data] == [
        "![1 tools]<user>hi<assistant>",
        "!<system>s<user>u<assistant>",
    ]
    assert [s.label for s in data] == [0, "b"]  # an integer label stays one
    assert data[0].metadata == {"source": "x", "tools": [{"name": "f"}]}
    assert data[1].metadata == {}


def test_without_template_messages_stay_messages(write_jsonl: Callable[..., str]) -> None:
    messages = [{"role": "user", "content": "u"}]
    data = Dataset(write_jsonl([{"text": messages}]), None, None, None)
    assert data[0].prompt == messages


def test_long_prompts_are_left_out_and_counted(
    tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    samples = [Sample(prompt="a" * n) for n in (3, 5, 4)]
    assert filter_long_prompt(samples, tokenizer, None, 4) == [samples[0], samples[2]]
    assert "1 of 3 prompts have more than 4 tokens" in caplog.text
    assert filter_long_prompt(samples, tokenizer, None, None) == samples


def test_missing_keys_name_the_line_and_the_likely_key(write_jsonl: Callable[..., str]) -> None:
    path = write_jsonl([{"input": "x", "label": 1}, {"inputs": "y"}])
    with pytest.raises(ConfigError) as caught:
        Dataset(path, None, None, None, prompt_key="input", label_key="answer")
    text = str(caught.value)
    assert f"{path}:2: has no key 'input'" in text and "did you mean inputs?" in text
    assert f"{path}:1: has no key 'answer'" in text and "it has: input, label" in text


def test_nothing_left_and_no_tokenizer_are_errors(
    write_jsonl: Callable[..., str], tokenizer: Any
) -> None:
    path = write_jsonl([{"text": "long"}])
    with pytest.raises(ConfigError, match="no prompt is left of 1"):
        Dataset(path, tokenizer, None, 2)
    with pytest.raises(ConfigError, match="--hf-checkpoint"):
        Dataset(path, None, None, None, apply_chat_template=True)


def test_shuffles_depend_on_seed_and_epoch_alone(write_jsonl: Callable[..., str]) -> None:
    path = write_jsonl([{"text": str(n)} for n in range(50)])

    def order(seed: int, *epochs: int) -> list[str]:
        data = Dataset(path, None, None, None, seed=seed)
        for epoch in epochs:
            data.shuffle(epoch)
        return [sample.prompt for sample in data]

    assert order(1, 0, 1, 2) == order(1, 2)
    assert len({tuple(order(s, e)) for s in (1, 2) for e in (0, 1)}) == 4
    assert sorted(order(1, 3), key=int) == [str(n) for n in range(50)]


def test_media_take_the_places_of_their_marks(
    write_jsonl: Callable[..., str],
) -> None:
    row = {
        "text": [
            {"role": "system", "content": "look"},
            {"role": "assistant", "tool_calls": []},
            {"role": "user", "content": "<image> and <image>: same as <video>?"},
        ],
        "pictures": ["1.png", "2.png"],
        "clip": "c.mp4",
    }
    keys = {"image": "pictures", "video": "clip", "audio": "sound"}
    (sample,) = Dataset(write_jsonl([row]), None, None, None, multimodal_keys=keys)
    assert sample.multimodal_inputs == {"image": ["1.png", "2.png"], "video": ["c.mp4"]}
    assert sample.prompt[0] == {"role": "system", "content": "look"}
    assert sample.prompt[1] == {"role": "assistant", "tool_calls": []}
    assert sample.prompt[2]["content"] == [
        {"type": "image", "image": "1.png"},
        {"type": "text", "text": " and "},
        {"type": "image", "image": "2.png"},
        {"type": "text", "text": ": same as "},
        {"type": "video", "video": "c.mp4"},
        {"type": "text", "text": "?"},
    ]


def test_rows_without_media_parts_of_their_own_and_plain_texts_stay(
    write_jsonl: Callable[..., str],
) -> None:
    parts = [{"role": "user", "content": [{"type": "image"}]}]
    rows = [{"text": "no <image>"}, {"text": parts, "i": "1.png"}, {"text": "a", "i": "2.png"}]
    data = Dataset(write_jsonl(rows), None, None, None, multimodal_keys={"image": "i"})
    assert [sample.prompt for sample in data] == ["no <image>", parts, "a"]
    assert [s.multimodal_inputs for s in data] == [None, {"image": ["1.png"]}, {"image": ["2.png"]}]


def test_a_text_under_a_chat_template_gets_its_media_too(write_jsonl: Callable[..., str]) -> None:
    class Parts:
        def apply_chat_template(self, conversation: Any, **kwargs: Any) -> str:
            return "".join(part["type"][0] for part in conversation[0]["content"])

    data = Dataset(
        write_jsonl([{"text": "<image>?", "i": "1.png"}]),
        Parts(),
        None,
        None,
        multimodal_keys={"image": "i"},
        apply_chat_template=True,
    )
    assert data[0].prompt == "it"


def test_marks_and_media_must_agree(write_jsonl: Callable[..., str]) -> None:
    rows = [{"text": [{"role": "user", "content": "<image><image>"}], "i": ["1.png"]}]
    with pytest.raises(ConfigError, match=r"prompts\.jsonl:1: has 1 of kind image, but 2 marks"):
        Dataset(write_jsonl(rows), None, None, None, multimodal_keys={"image": "i"})


def test_the_processor_counts_the_tokens_of_media(tokenizer: Any) -> None:
    calls = []

    def processor(text: list[str], **media: Any) -> dict[str, list[list[int]]]:
        calls.append(media)
        return {"input_ids": [[0] * (len(text[0]) + 10 * len(media["images"]))]}

    samples = [Sample(prompt="aa"), Sample(prompt="aa", multimodal_inputs={"image": ["1.png"]})]
    assert filter_long_prompt(samples, tokenizer, processor, 11) == samples[:1]
    assert filter_long_prompt(samples, tokenizer, processor, 12) == samples
    assert calls == [{"images": ["1.png"]}] * 2
