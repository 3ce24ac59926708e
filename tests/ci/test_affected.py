"""Which tests a change affects, on a small workspace written as Bazel 4.2.3 writes its graph.

Six tests: two of library `a`, one of `b`, one of a program that reads data, two of wheels.
"""

import os
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest

from ci.affected import Answer, bazel_command, orphans, report
from ci.affected_diff import affected_tests, explain, with_tags
from ci.affected_graph import Graph, UndecidedError, file_digest, parse_graph, seed_digests
from ci.affected_snapshot import LOCK, WORKSPACE_FILES, locator

RUNNER = "//tools:runner.py"
MACROS = 'def room_test(name):\n    """A test."""\n    native.py_test(name = name)  # plain\n'
FILES = {
    ".bazelrc": "# settings\nbuild --strict\n",
    "WORKSPACE": 'workspace(name = "w")  # name\n',
    "tools/macros.bzl": MACROS,
    LOCK: "PACKAGES = {}\n",
    "tools/runner.py": "run()\n",
    "lib/a.py": "a = 1\n",
    "lib/b.py": "b = 1\n",
    "data/table.txt": "1 2\n",
    "t/BUILD.bazel": "room_test()\n",
    "external/pypi_ray/stamp": "ray 1",
    "external/pypi_numpy/stamp": "numpy 1",
    **{f"t/{name}.py": f"{name}\n" for name in ("a1", "a2", "b1", "d1", "r1", "n1")},
}
RULES: dict[str, tuple[str, list[str]]] = {
    "//lib:a": ("py_library", ["//lib:a.py"]),
    "//lib:b": ("py_library", ["//lib:b.py"]),
    "@pypi//ray:ray": ("alias", ["@pypi_ray//:pkg"]),
    "@pypi_ray//:pkg": ("py_library", ["@pypi_ray//:stamp"]),
    "@pypi//numpy:numpy": ("alias", ["@pypi_numpy//:pkg"]),
    "@pypi_numpy//:pkg": ("py_library", ["@pypi_numpy//:stamp"]),
    "//data:maker": ("genrule", ["//data:table.txt"]),
    "//t:a1": ("py_test", ["//t:a1.py", RUNNER, "//lib:a"]),
    "//t:a2": ("py_test", ["//t:a2.py", RUNNER, "//lib:a"]),
    "//t:b1": ("py_test", ["//t:b1.py", RUNNER, "//lib:b"]),
    "//t:d1": ("py_test", ["//t:d1.py", RUNNER, "//data:table.bin"]),
    "//t:n1": ("py_test", ["//t:n1.py", RUNNER, "@pypi//numpy:numpy"]),
    "//t:r1": ("py_test", ["//t:r1.py", RUNNER, "@pypi//ray:ray"]),
}
EVERY = {label for label, (kind, _) in RULES.items() if kind == "py_test"}


class Workspace:
    """Files in a folder and the rules that Bazel would find there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rules = {label: (kind, list(inputs)) for label, (kind, inputs) in RULES.items()}
        self.tags = {"//t:a1": ["cpu"], "//t:a2": ["cpu", "slow"], "//t:b1": ["gpu"]}
        self.line = 1  # where a rule stands in its BUILD file
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def xml(self) -> str:
        files = {name for _, inputs in self.rules.values() for name in inputs} - {*self.rules}
        parts = [self.rule(label) for label in self.rules]
        parts += [f"<source-file name={quoteattr(name)}/>" for name in files if ".bin" not in name]
        parts.append('<generated-file name="//data:table.bin" generating-rule="//data:maker"/>')
        return f'<?xml version="1.1" encoding="UTF-8"?><query version="2">{"".join(parts)}</query>'

    def rule(self, label: str) -> str:
        kind, inputs = self.rules[label]
        place = f"{self.root}/t/BUILD.bazel:{self.line}:1"
        tags = "".join(f'<string value="{tag}"/>' for tag in self.tags.get(label, []))
        names = "".join(f"<rule-input name={quoteattr(name)}/>" for name in inputs)
        return (
            f'<rule class="{kind}" location="{place}" name="{label}">'
            f'<list name="tags">{tags}</list>'
            f'<string name="generator_location" value="t/BUILD.bazel:{self.line}"/>'
            f"{names}</rule>"
        )

    def graph(self) -> Graph:
        seed = seed_digests(self.root, [*WORKSPACE_FILES, "tools/macros.bzl"])
        return parse_graph(self.xml(), seed, locator(self.root, self.root))


@pytest.fixture
def base(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "base")


@pytest.fixture
def head(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "head")


def test_nothing_changed_in_another_folder(base, head):
    assert affected_tests(base.graph(), head.graph()) == {}


def renamed(w: Workspace) -> None:
    (w.root / "lib/a.py").rename(w.root / "lib/c.py")
    w.rules["//lib:a"] = ("py_library", ["//lib:c.py"])


def untracked(w: Workspace) -> None:
    """A glob finds a new file."""
    w.write("lib/new.py", "")
    w.rules["//lib:b"][1].append("//lib:new.py")


def linked_elsewhere(w: Workspace) -> None:
    w.write("elsewhere.txt", "3 4\n")
    (w.root / "data/table.txt").unlink()
    (w.root / "data/table.txt").symlink_to(w.root / "elsewhere.txt")


def linked_same(w: Workspace) -> None:
    (w.root / "data/table.txt").rename(w.root / "elsewhere.txt")
    (w.root / "data/table.txt").symlink_to("../elsewhere.txt")


def ray_gains_a_dependency(w: Workspace) -> None:
    w.rules["@pypi_ray//:pkg"][1].append("@pypi//numpy:numpy")


def moved_down(w: Workspace) -> None:
    """A comment was put on top of the BUILD file."""
    w.line = 9


def new_test(w: Workspace) -> None:
    w.write("t/new.py", "")
    w.rules["//t:new"] = ("py_test", ["//t:new.py", RUNNER])


def write(name: str, text: str) -> Callable[[Workspace], None]:
    return lambda w: w.write(name, text)


A, NONE = {"//t:a1", "//t:a2"}, set()
TABLE = {
    "library touched": (write("lib/a.py", "a = 2\n"), A),
    "source deleted": (lambda w: (w.root / "lib/a.py").unlink(), A),
    "source renamed": (renamed, A),
    "untracked file in a glob": (untracked, {"//t:b1"}),
    "test edited": (write("t/b1.py", "b2\n"), {"//t:b1"}),
    "file in no target": (write("notes.md", "x"), NONE),
    "macro comment": (
        write("tools/macros.bzl", MACROS.replace("plain", "simple").replace("A test", "One test")),
        NONE,
    ),
    "real macro change": (
        write("tools/macros.bzl", MACROS.replace("name)", "name, x = 1)")),
        EVERY,
    ),
    "runner": (write("tools/runner.py", "run(1)\n"), EVERY),
    ".bazelrc": (write(".bazelrc", "build --lax\n"), EVERY),
    ".bazelrc comment": (write(".bazelrc", "# why\n\nbuild --strict\n"), NONE),
    "WORKSPACE": (write("WORKSPACE", 'workspace(name = "v")\n'), EVERY),
    "WORKSPACE comment": (write("WORKSPACE", '# x\nworkspace(name = "w")\n'), NONE),
    "MODULE.bazel appears": (write("MODULE.bazel", 'module(name = "w")\n'), EVERY),
    "unused dependency added": (write(LOCK, "PACKAGES = {1: 1}\n"), NONE),
    "ray gains a dependency": (ray_gains_a_dependency, {"//t:r1"}),
    "ray has another wheel": (write("external/pypi_ray/stamp", "ray 2"), {"//t:r1"}),
    "data file, through a generated one": (write("data/table.txt", "3 4\n"), {"//t:d1"}),
    "link to other content": (linked_elsewhere, {"//t:d1"}),
    "link to the same content": (linked_same, NONE),
    "made executable": (lambda w: (w.root / "lib/b.py").chmod(0o755), {"//t:b1"}),
    "BUILD: tags of a target": (lambda w: w.tags.update({"//t:b1": ["cpu"]}), {"//t:b1"}),
    "BUILD: only lines moved": (moved_down, NONE),
    "BUILD: new test": (new_test, {"//t:new"}),
    "BUILD: test removed": (lambda w: w.rules.pop("//t:b1"), NONE),
}


@pytest.mark.parametrize(("change", "affected"), TABLE.values(), ids=TABLE.keys())
def test_table_of_right_answers(base, head, change, affected):
    change(head)
    assert set(affected_tests(base.graph(), head.graph())) == affected


def test_survives_the_cache(base):
    graph = base.graph()
    assert Graph.from_json(graph.to_json()) == graph


def test_conditions_of_select_count(base, head):
    """Bazel's XML has the values of all branches of a select and not which is whose."""
    base.write("t/BUILD.bazel", 'x(d = select({"p": ["a"], "q": ["b"]}))')
    head.write("t/BUILD.bazel", 'x(d = select({"p": ["b"], "q": ["a"]}))')
    assert set(affected_tests(base.graph(), head.graph())) == EVERY


def test_missing_on_both_sides_is_not_the_same(base, head):
    for side in (base, head):
        (side.root / "lib/a.py").unlink()
    found = affected_tests(base.graph(), head.graph())
    assert found == dict.fromkeys(A, "always runs: its input //lib:a.py does not exist")


def test_what_is_never_cached_always_runs(base, head):
    for side in (base, head):
        side.tags["//t:b1"] = ["cpu", "external"]
    found = affected_tests(base.graph(), head.graph())
    assert found == {"//t:b1": "always runs: it is tagged external"}


def test_cycle_and_gap_are_undecided(base, head):
    head.rules["//lib:a"][1].append("//lib:b")
    head.rules["//lib:b"][1].append("//lib:a")
    with pytest.raises(UndecidedError, match="cycle: .*//lib:a"):
        affected_tests(base.graph(), head.graph())
    graph = base.graph()
    del graph.nodes["//lib:b.py"]
    with pytest.raises(UndecidedError, match="//lib:b.py"):
        affected_tests(base.graph(), graph)


def test_unreadable_answer_is_undecided(base):
    with pytest.raises(UndecidedError, match="cannot be read"):
        parse_graph(base.xml()[:-9], {}, locator(base.root, base.root))


def test_explains_by_the_path_of_changed_inputs(base, head):
    head.write("data/table.txt", "3\n")
    (head.root / "lib/a.py").unlink()
    graphs = base.graph(), head.graph()
    assert explain("//t:d1", *graphs) == [
        "//t:d1: //data:table.txt has changed",
        "  <- //data:table.bin",
        "    <- //data:maker",
        "      <- //data:table.txt",
    ]
    assert explain("//t:a1", *graphs)[0] == "//t:a1: //lib:a.py is gone"
    assert "not affected" in explain("//t:b1", *graphs)[0]
    assert "not a test" in explain("//lib:a", *graphs)[0]


def test_explains_other_inputs_and_seeds(base, head):
    ray_gains_a_dependency(head)
    reason = explain("//t:r1", base.graph(), head.graph())[0]
    assert reason.endswith("@pypi_ray//:pkg has other inputs: +@pypi//numpy:numpy")
    head.write(".bazelrc", "")
    assert explain("//t:b1", base.graph(), head.graph()) == [
        "//t:b1: every target depends on .bazelrc"
    ]


@pytest.mark.parametrize(
    ("tags", "kept"),
    [
        ("", {*EVERY}),
        ("cpu", A),
        ("cpu,-slow", {"//t:a1"}),
        ("cpu,gpu", {*A, "//t:b1"}),
        ("-gpu", EVERY - {"//t:b1"}),
    ],
)
def test_tags_as_bazel_reads_them(base, tags, kept):
    assert set(with_tags(sorted(EVERY), base.graph(), tags)) == kept


def test_test_file_in_no_target(base):
    assert orphans(["t/a1.py", "t/lost.py"], base.graph()) == ["t/lost.py"]


def test_undecided_runs_everything_and_says_why():
    found = Answer(undecided="no such revision")
    assert report(found) == ["ALL tests: no such revision"]
    assert bazel_command(found, "cpu")[-3:] == ["--test_tag_filters=cpu", "--", "//..."]
    assert bazel_command(Answer(targets=[]), "") is None
    assert bazel_command(Answer(targets=["//t:a1"]), "")[-2:] == ["--", "//t:a1"]


def test_folder_as_a_source(tmp_path: Path):
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/f").write_text("1")
    before = file_digest(tmp_path / "d")
    os.rename(tmp_path / "d/e/f", tmp_path / "d/e/g")
    assert file_digest(tmp_path / "d") != before
