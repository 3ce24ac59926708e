"""Values of prompt files and chat templates that would fail only after the start are refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.errors import Problem

Collect = Callable[..., list[Problem]]
GOOD = {"input": "1+1=", "label": "2"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"input": 5}, "'input' (--input-key) is a int"),
        ({"input": None}, "is a NoneType"),
        ({"input": {"role": "user"}}, "is a dict"),
        ({"input": []}, "is empty"),
        ({"input": ""}, "is empty"),
        ({"input": ["1+1="]}, "no message"),
        ({"input": [{"content": "1+1="}]}, "no message"),
        ({"label": None}, "'label' (--label-key) is null, and a rule grades with it"),
    ],
    ids=str,
)
def test_an_odd_value_is_named_with_its_line(
    problems_of: Collect, tmp_path: Path, row: dict[str, object], message: str
) -> None:
    rows = [GOOD, GOOD | row, GOOD]
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows * 10))
    problems = problems_of("--prompt-data", "odd.jsonl")
    assert problems[0].option.endswith("odd.jsonl:2")
    assert message in problems[0].message


@pytest.mark.parametrize("words", ["--rm-type ifbench", "--custom-rm-path json.dumps"])
def test_a_label_that_no_rule_needs_may_be_null(
    problems_of: Collect, tmp_path: Path, words: str
) -> None:
    (tmp_path / "odd.jsonl").write_text(json.dumps(GOOD | {"label": None}) + "\n")
    found = problems_of("--prompt-data", "odd.jsonl", *words.split())
    assert [problem for problem in found if "odd.jsonl" in problem.option] == []


MESSAGES = {"input": [{"role": "user", "content": "1+1="}], "label": "2"}


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{{ m['content'] }}{% endfor %}", None),
        ("{% for m in messages %}{% if m %}{% continue %}{% endif %}{% endfor %}", None),
        ("{% generation %}{{ messages[0]['content'] }}{% endgeneration %}", None),
        ("{% for m in messages %}\n{{ m['content'] }}", "line 2"),
        ("{{ messages[0 }}", "line 1"),
        ("{% unknown %}", "unknown tag 'unknown'"),
    ],
)
@pytest.mark.parametrize("where", ["file", "setting", "named"])
def test_a_broken_chat_template(
    problems_of: Collect, tmp_path: Path, template: str, message: str | None, where: str
) -> None:
    (tmp_path / "chat.jsonl").write_text(json.dumps(MESSAGES) + "\n" * 2)
    if where == "file":
        (tmp_path / "model" / "chat_template.jinja").write_text(template)
    else:
        named = [{"name": "default", "template": template}]
        value = named if where == "named" else template
        config = json.dumps({"chat_template": value})
        (tmp_path / "model" / "tokenizer_config.json").write_text(config)
    problems = problems_of("--prompt-data", "chat.jsonl", "--apply-chat-template")
    assert [problem for problem in problems_of() if "template" in str(problem)] == []  # not used
    if message is None:
        assert problems == []
    else:
        assert "chat_template" in problems[0].option
        assert message in problems[0].message
