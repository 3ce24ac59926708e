"""Count Bazel's test targets from its build events: `count_tests.py EVENTS_JSON BAZEL_EXIT_CODE`.

Prints the failing targets and, last, `N passed, N failed`. A selected target passed only if Bazel
says that it did: one that failed to build counts as failed. Exits 0 only if Bazel did, something
was tested and nothing failed.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

PASSED = ("PASSED", "FLAKY")


def statuses(events: Iterable[dict]) -> dict[str, str]:
    """Map every selected test target to Bazel's status, or "FAILED TO BUILD" if it never ran."""
    selected: dict[str, str] = {}
    ran: dict[str, str] = {}
    for event in events:
        if "configured" in event and "testSize" in event["configured"]:
            selected[event["id"]["targetConfigured"]["label"]] = "FAILED TO BUILD"
        elif "testSummary" in event:
            ran[event["id"]["testSummary"]["label"]] = event["testSummary"]["overallStatus"]
    return {**selected, **ran}


def summary(found: dict[str, str], bazel_exit: int) -> tuple[list[str], bool]:
    """The lines to print and whether the run is good."""
    failed = sorted(label for label, status in found.items() if status not in PASSED)
    lines = [f"{found[label]}: {label}" for label in failed]
    passed, lost = len(found) - len(failed), len(failed)
    if (
        bazel_exit and not lost
    ):  # an error outside any test, such as a BUILD file that does not load
        lines.append(f"FAILED: bazel itself, exit code {bazel_exit}; see its ERROR lines above")
        lost = 1
    elif not found:
        lines.append("FAILED: no test was selected")
    return [*lines, f"{passed} passed, {lost} failed"], passed > 0 and lost == 0


def main(argv: list[str]) -> int:
    """Read, print, and say by the exit code whether all is well."""
    events = [json.loads(line) for line in Path(argv[0]).read_text().splitlines()]
    lines, good = summary(statuses(events), int(argv[1]))
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
