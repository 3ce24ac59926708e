"""Take the build graph of a folder or a commit: Bazel queries, git, and a cache keyed by commit.

The commit's folder is a git worktree in the user's cache. It stays there, so that Bazel's folder
for it (wheels fetched, packages loaded) serves the next commit too.
"""

import contextlib
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from ci.affected_git import commit_of, listed, run, sources
from ci.affected_graph import Graph, digest, is_built_in, parse_graph, seed_digests

TESTS = "deps(tests(//...))"
# What no target names but every target depends on. `.bazelrc.user` is the machine's: no change.
WORKSPACE_FILES = (
    ".bazelignore",
    ".bazelrc",
    ".bazelversion",
    "MODULE.bazel",
    "MODULE.bazel.lock",
    "REPO.bazel",
    "WORKSPACE",
    "WORKSPACE.bazel",
    "WORKSPACE.bzlmod",
)
BAZEL = "Bazel's version"  # in the seed
# Only declares repositories, whose BUILD files and stamps are in the graph: seen there, exactly.
LOCK = "third_party/pypi/lock.bzl"


def take(root: Path) -> Graph:
    """Ask Bazel for the graph of the workspace as it lies there."""
    query = ["./bazelw", "query", "--noshow_progress"]
    info = dict(
        line.split(": ", 1)
        for line in run(["./bazelw", "info", "output_base", "release"], root).splitlines()
    )
    locate = locator(root, Path(info["output_base"]))
    xml = run([*query, "--output=xml", TESTS], root)
    loaded = run([*query, f"loadfiles({TESTS})"], root).split()
    seed = seed_digests(root, seed_files(root, loaded))
    for label in (label for label in loaded if label.startswith("@") and not is_built_in(label)):
        seed |= {label: seed_digests(locate(label).parent, [locate(label).name]).popitem()[1]}
    return parse_graph(xml, seed | {BAZEL: info["release"]}, locate)


def locator(root: Path, output_base: Path) -> Callable[[str], Path]:
    """Return the function from a source file's label to its path."""

    def locate(label: str) -> Path:
        repository, _, rest = label.partition("//")
        name = repository.lstrip("@")
        package, _, file = rest.partition(":")
        return (output_base / "external" / name if name else root) / package / file

    return locate


def seed_files(root: Path, loaded: Iterable[str]) -> set[str]:
    """Name the workspace's files that change every target: its settings and its Starlark.

    `loaded` are the labels of the .bzl files that BUILD files load: Bazel's XML does not say.
    """
    found = {*WORKSPACE_FILES, *_imported_settings(root)} | set(sources(root, "*.bzl")) - {LOCK}
    return found | {
        label.lstrip("@/").replace(":", "/").lstrip("/")
        for label in loaded
        if label.lstrip("@").startswith("//")
    }


def _imported_settings(root: Path) -> set[str]:
    """Files of the workspace that .bazelrc imports; `try-import` of an ignored file is private."""
    if not (root / ".bazelrc").is_file():
        return set()
    words = (line.split() for line in (root / ".bazelrc").read_text().splitlines())
    imports = [line[1] for line in words if len(line) == 2 and line[0] in ("import", "try-import")]
    names = {name.removeprefix("%workspace%/") for name in imports if "%workspace%/" in name}
    return names & set(sources(root))


class Snapshots:
    """Graphs of one clone's commits and of its work tree, kept in the user's cache."""

    def __init__(self, root: Path, cache: Path) -> None:
        self.root = root
        self.folder = cache / digest(str(root.resolve()))[:16]

    def at(self, commit: str, bazel: str) -> Graph:
        """Return the graph of a commit, from the cache if this version of Bazel made it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the worktree is one
            path = self._path(commit)
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                graph = Graph.from_json(json.loads(path.read_text()))
                if graph.seed[BAZEL] == bazel:
                    return graph
            print(f"affected: asking Bazel about {commit[:12]} ...", file=sys.stderr)
            tree = self._check_out(commit)
            try:
                graph = take(tree)
            finally:
                subprocess.run(["./bazelw", "shutdown"], cwd=tree, capture_output=True)
            self._store(commit, graph)
            return graph

    def here(self) -> Graph:
        """Return the graph of the work tree; keep it if the tree is exactly its commit."""
        graph = take(self.root)
        commit = commit_of(self.root, "HEAD")
        if not self._path(commit).exists() and self._is_commit(graph):
            self._store(commit, graph)
        return graph

    def _is_commit(self, graph: Graph) -> bool:
        """Whether neither a change nor an ignored file has a part in the graph."""
        if run(["git", "status", "--porcelain"], self.root):
            return False
        ignored = ["--others", "--ignored", "--exclude-standard", "--", "*BUILD", "*BUILD.bazel"]
        if listed(self.root, *ignored):
            return False
        tracked = set(listed(self.root))
        locate = locator(Path(), Path())
        files = (
            str(locate(label))
            for label, node in graph.nodes.items()
            if label.startswith("//") and node.is_file
        )
        return tracked.issuperset(files)

    def _path(self, commit: str) -> Path:
        code = (
            Path(__file__).with_name(f"affected_{name}.py") for name in ("git", "graph", "snapshot")
        )
        version = digest(b"".join(path.read_bytes() for path in code))[:16]
        return self.folder / f"{commit}-{version}.json"

    def _store(self, commit: str, graph: Graph) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(commit)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(graph.to_json()))
        temporary.rename(path)

    def _check_out(self, commit: str) -> Path:
        tree = self.folder / "tree"
        if not (tree / ".git").exists():
            run(["git", "worktree", "prune"], self.root)
            run(["git", "worktree", "add", "--force", "--detach", str(tree), commit], self.root)
        else:
            run(["git", "checkout", "--quiet", "--force", "--detach", commit], tree)
        run(["git", "clean", "-ffdxq"], tree)
        return tree
