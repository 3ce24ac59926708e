"""Say which tests a change affects, and why: `python3 ci/affected.py --base REV`.

    python3 ci/affected.py --base origin/main                   # one line for each test
    python3 ci/affected.py --base origin/main --tags cpu --run  # and test them
    python3 ci/affected.py --base HEAD~1 --explain //tests/data:test_prompts

Compares the work tree, with what is not committed, to the revision: the digest of each test with
all that it reaches in Bazel's graph. Whatever that cannot decide means every test, said aloud.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":  # run as a file, not by `python -m`
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ci.affected_diff import affected_tests, explain, tests_of, with_tags
from ci.affected_git import commit_of, sources
from ci.affected_graph import Graph, UndecidedError
from ci.affected_snapshot import BAZEL, Snapshots


@dataclass
class Answer:
    """`undecided` says why all tests must run; `targets` is None if not even they are known."""

    targets: list[str] | None = None
    why: dict[str, str] = field(default_factory=dict)
    undecided: str | None = None
    base: Graph | None = None
    head: Graph | None = None


def answer(snapshots: Snapshots, revision: str, tags: str) -> Answer:
    """Find the affected tests; what cannot be decided is in `undecided`."""
    found = Answer()
    try:
        found.head = snapshots.here()
        found.base = snapshots.at(commit_of(snapshots.root, revision), found.head.seed[BAZEL])
        found.why = affected_tests(found.base, found.head)
    except (UndecidedError, OSError) as error:
        found.undecided = str(error)
        if found.head:
            found.why = dict.fromkeys(tests_of(found.head), "undecided")
    if found.head:
        found.targets = with_tags(found.why, found.head, tags)
    return found


def orphans(files: list[str], graph: Graph) -> list[str]:
    """List the test files that no test target reads: Bazel would never run them."""
    known = {label.lstrip("@/").replace(":", "/") for label in graph.nodes}
    return [file for file in files if file not in known]


def report(found: Answer) -> list[str]:
    """Write the answer for people."""
    if found.undecided:
        return [f"ALL tests: {found.undecided}"]
    assert found.head is not None and found.targets is not None
    lines = [f"{label}: {found.why[label]}" for label in found.targets]
    return [*lines, f"{len(found.targets)} of {len(tests_of(found.head))} tests are affected"]


def as_json(found: Answer) -> str:
    """Write the answer for programs: `targets` is null if everything must run and is not known."""
    targets = found.targets or []
    return json.dumps(
        {
            "all": found.undecided is not None,
            "reason": found.undecided,
            "targets": found.targets,
            "why": {label: found.why[label] for label in targets},
        },
        indent=2,
    )


def bazel_command(found: Answer, tags: str, config: str = "") -> list[str] | None:
    """Return Bazel's command for the answer, or None if there is nothing to test."""
    filters = [f"--config={config}"] if config else []
    filters += [f"--test_tag_filters={tags}"] if tags else []
    if found.targets is None:
        return ["./bazelw", "test", *filters, "--", "//..."]
    if not found.targets:
        return None
    return ["./bazelw", "test", *filters, "--", *found.targets]


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--base", required=True, metavar="REV", help="what to compare with")
    parser.add_argument("--tags", default="", help="only these, as in --test_tag_filters")
    parser.add_argument("--config", default="", help="what --run gives Bazel as --config")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print JSON")
    output.add_argument("--run", action="store_true", help="test them; exits as Bazel does")
    output.add_argument("--explain", metavar="TARGET", help="the path to the changed input")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Print or run; 2 if a test file is in no target."""
    args = parse(argv)
    root = Path(__file__).resolve().parents[1]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slime-affected"
    found = answer(Snapshots(root, cache), args.base, args.tags)
    if found.head and (lost := orphans(sources(root, "tests/**/test_*.py"), found.head)):
        print("\n".join(f"{file}: belongs to no test target" for file in lost), file=sys.stderr)
        return 2
    if args.json:
        print(as_json(found))
        return 0
    if args.explain and found.base and found.head and not found.undecided:
        print("\n".join(explain(args.explain, found.base, found.head)))
        return 0
    print("\n".join(report(found)), flush=True)
    command = bazel_command(found, args.tags, args.config) if args.run else None
    return subprocess.run(command, cwd=root).returncode if command else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
