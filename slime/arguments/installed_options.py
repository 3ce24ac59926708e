"""The options of the installed SGLang and router, read from their source text: importing them takes
seconds and needs torch.
"""

import ast
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

_SERVER_ARGS = "sglang/srt/server_args.py"
_SERVER_FIELDS = "sglang/srt/arg_groups/fields"
_ROUTER_ARGS = "sglang_router/router_args.py"


@cache
def sglang_options() -> dict[str, str]:
    """Option name with underscores -> its type as written; empty when no SGLang is on the path."""
    server_args = find_on_path(_SERVER_ARGS)
    if server_args is None:
        return {}
    fields = find_on_path(_SERVER_FIELDS)
    options: dict[str, str] = {}
    for file in [server_args, *(sorted(fields.glob("*.py")) if fields else [])]:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        options |= class_fields(tree, want=None if file.parent == fields else ("ServerArgs",))
        options |= dict.fromkeys(_literal_options(tree), "")
    return options


@cache
def router_options() -> dict[str, str]:
    """The same for sglang-router."""
    file = find_on_path(_ROUTER_ARGS)
    if file is None:
        return {}
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return dict.fromkeys(_literal_options(tree), "") | class_fields(tree, want=("RouterArgs",))


def find_on_path(relative: str, path: Sequence[str] | None = None) -> Path | None:
    """The first entry of sys.path that holds `relative`."""
    for entry in sys.path if path is None else path:
        candidate = Path(entry or ".") / relative
        if candidate.exists():
            return candidate
    return None


def class_fields(tree: ast.Module, want: Iterable[str] | None) -> dict[str, str]:
    """Annotated fields of the classes; a field's `cli_name` and `aliases` count as well."""
    options: dict[str, str] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or (want is not None and node.name not in want):
            continue
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                kind = ast.unparse(_plain_type(statement.annotation))
                names = _cli_names(statement.annotation)
                renamed = any(keyword == "cli_name" for keyword, _ in names)
                if not renamed:
                    options[statement.target.id] = kind
                for _, name in names:
                    options[name.lstrip("-").replace("-", "_")] = kind
    return options


def _plain_type(annotation: ast.expr) -> ast.expr:
    """The type inside `A[type, help]`, else the annotation itself."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        if annotation.value.id in ("A", "Annotated") and isinstance(annotation.slice, ast.Tuple):
            return annotation.slice.elts[0]
    return annotation


def _cli_names(annotation: ast.expr) -> list[tuple[str, str]]:
    """(keyword, option) for every option text in `cli_name=` and `aliases=` of the annotation."""
    return [
        (keyword.arg, constant.value)
        for keyword in ast.walk(annotation)
        if isinstance(keyword, ast.keyword) and keyword.arg in ("cli_name", "aliases")
        for constant in ast.walk(keyword.value)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    ]


def _literal_options(tree: ast.Module) -> list[str]:
    """Options that are added with `add_argument("--name")` or `add_argument(f"--{prefix}name")`."""
    names = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument":
            texts = [_text_of_option(word) for word in call.args]
            names += [text[2:].replace("-", "_") for text in texts if text.startswith("--")]
    return names


def _text_of_option(word: ast.expr) -> str:
    """The text of a literal; of an f-string, its literal parts (an empty prefix put in)."""
    parts = word.values if isinstance(word, ast.JoinedStr) else [word]
    return "".join(str(part.value) for part in parts if isinstance(part, ast.Constant))
