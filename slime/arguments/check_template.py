"""The chat template of --hf-checkpoint is a template: a mistake in it is found before the start."""

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slime.arguments.errors import Problem


def check_template(args: Namespace) -> Iterator[Problem]:
    """Parse the template where prompts are rendered with it; nothing is run."""
    sets = [dataset for dataset in args.eval_datasets if dataset.apply_chat_template]
    if args.hf_checkpoint is None or not (args.apply_chat_template or sets):
        return
    for place, text in _templates(Path(args.hf_checkpoint)):
        error = _syntax_error(text)
        if error is not None:
            message = f"is no valid template, line {error.lineno}: {error.message}"
            yield Problem(place, None, message, "repair the chat template of --hf-checkpoint")


def _templates(folder: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of the templates: the file, which transformers prefers, else the setting."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        yield str(file), file.read_text(encoding="utf-8", errors="replace")
        return
    file = folder / "tokenizer_config.json"
    try:
        found: Any = json.loads(file.read_bytes())["chat_template"]
    except (OSError, ValueError, KeyError, TypeError):
        return  # no template, or no tokenizer: its loading will tell
    named = found if isinstance(found, list) else [{"template": found}]
    for entry in named:
        if isinstance(entry, dict) and isinstance(entry.get("template"), str):
            yield f"{file} chat_template", entry["template"]


def _syntax_error(text: str) -> Any:
    """What Jinja says of a template, None if it is one."""
    import jinja2  # a twentieth of a second: only where there is a template
    import jinja2.ext
    import jinja2.nodes
    import jinja2.parser

    class Generation(jinja2.ext.Extension):
        """The mark of transformers around what the assistant wrote."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    try:
        jinja2.Environment(extensions=[Generation, jinja2.ext.loopcontrols]).parse(text)
    except jinja2.TemplateSyntaxError as error:
        return error
    return None
