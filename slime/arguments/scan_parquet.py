"""What the footer of a parquet file says about its prompts; no row is read."""

from pathlib import Path
from typing import Any

from slime.arguments.errors import Problem, did_you_mean


def scan_parquet(
    option: str, given: str, source: Path, keys: dict[str, str], metadata_key: str
) -> tuple[list[Problem], int | None, bool]:
    """(what is wrong, rows, whether the metadata has an `rm_type`).

    Args:
        option: The option that names the file, for messages.
        given: The path as given.
        source: The file.
        keys: Column the file must have -> the option that names it.
        metadata_key: Column of the metadata.
    """
    try:
        import pyarrow.parquet  # takes a quarter of a second, so only where there is such a file
    except ModuleNotFoundError:
        remedy = "install pyarrow, or convert the file to jsonl"
        return [Problem(option, given, "parquet needs pyarrow", remedy)], None, False
    try:
        with pyarrow.parquet.ParquetFile(source) as file:
            num_rows, schema = file.metadata.num_rows, file.schema_arrow
    except (OSError, pyarrow.ArrowException) as error:
        message = f"is no parquet file: {str(error).splitlines()[0]}"
        return [Problem(option, given, message, "write the file again")], None, False
    problems = []
    for key, key_option in keys.items():
        if key not in schema.names:
            message = f"has no column {key!r} ({key_option}); it has: {', '.join(schema.names[:6])}"
            remedy = did_you_mean(key, schema.names) or f"give {key_option} another column"
            problems.append(Problem(f"{option} {source}", None, message, remedy))
    return problems, int(num_rows), _names_grader(schema, metadata_key)


def _names_grader(schema: Any, metadata_key: str) -> bool:
    """Whether the metadata is a struct with a field `rm_type`."""
    if metadata_key not in schema.names:
        return False
    kind = schema.field(metadata_key).type
    return any(kind.field(number).name == "rm_type" for number in range(kind.num_fields))
