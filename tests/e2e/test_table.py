"""docs/e2e.md is what the tests give now."""

import os
from pathlib import Path

from tests.e2e.table import DOCUMENT, document

ROOT = Path(os.environ["SLIME_RUNFILES"])


def test_the_document_is_up_to_date() -> None:
    assert (ROOT / DOCUMENT).read_text() == document(ROOT), "stale: ./bazelw run //tests/e2e:table"
