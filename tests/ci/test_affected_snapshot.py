"""Graphs of commits and of a work tree: real git, worktrees and cache.

Bazel does not run inside a test, so `./bazelw` is a script here that answers as Bazel would about
one test, and counts the queries.
"""

import subprocess
from pathlib import Path

import pytest

from ci.affected import answer
from ci.affected_git import commit_of
from ci.affected_graph import UndecidedError
from ci.affected_snapshot import BAZEL, LOCK, Snapshots, seed_files, take

BAZELW = """#!/bin/sh
case "$*" in
*info*) echo "output_base: $PWD/base"; echo "release: release 4.2.3" ;;
*loadfiles*) echo //t:rules.bzl ;;
*query*)
    echo >>"$(git rev-parse --git-common-dir)/queries"
    if [ -e broken ]; then echo "ERROR: t/BUILD: no such package" >&2; exit 7; fi
    echo '<query><rule class="py_test" name="//t:x"><rule-input name="//t:x.py"/></rule>'
    for file in t/*.py; do echo "<source-file name='//t:${file#t/}'/>"; done
    echo '</query>' ;;
esac
"""


RELEASE = "release 4.2.3"


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(root: Path) -> str:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=x")
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "clone"
    (folder / "t").mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "bazelw").write_text(BAZELW)
    (folder / "bazelw").chmod(0o755)
    (folder / ".gitignore").write_text("ignored*\n")
    (folder / "t/x.py").write_text("1\n")
    (folder / "t/rules.bzl").write_text("x = 1\n")
    return folder


@pytest.fixture
def snapshots(root: Path, tmp_path: Path) -> Snapshots:
    return Snapshots(root, tmp_path / "cache")


def queries(root: Path) -> int:
    counted = root / ".git/queries"
    return len(counted.read_text().splitlines()) if counted.exists() else 0


def test_a_commit_is_asked_about_once(root, snapshots):
    first = commit(root)
    (root / "t/x.py").write_text("2\n")
    second = commit(root)
    graph = snapshots.at(first, RELEASE)
    assert snapshots.at(first, RELEASE) == graph
    assert queries(root) == 1
    assert snapshots.at(second, RELEASE) != graph
    assert git(root, "rev-parse", "HEAD") == second  # the work tree was left alone


def test_a_clean_tree_is_its_commit(root, snapshots):
    head = commit(root)
    here = snapshots.here()
    assert snapshots.at(head, RELEASE) == here
    assert queries(root) == 1


@pytest.mark.parametrize("name", ["t/x.py", "t/untracked.py", "t/ignored.py"])
def test_a_tree_with_a_change_is_not_its_commit(root, snapshots, name):
    head = commit(root)
    (root / name).write_text("changed\n")
    assert snapshots.at(head, RELEASE) != snapshots.here()
    assert queries(root) == 2


def test_a_damaged_cache_is_asked_again(root, snapshots):
    head = commit(root)
    graph = snapshots.at(head, RELEASE)
    snapshots._path(head).write_text("{")
    assert snapshots.at(head, RELEASE) == graph


def test_another_bazel_asks_again(root, snapshots):
    head = commit(root)
    snapshots.at(head, "release 4.2.2")
    snapshots.at(head, "release 4.2.2")
    assert queries(root) == 2


def test_a_cache_that_cannot_be_written_means_every_test(root, tmp_path):
    commit(root)
    (tmp_path / "file").write_text("")
    found = answer(Snapshots(root, tmp_path / "file"), "HEAD", "")
    assert "Not a directory" in found.undecided


def test_says_what_has_changed_since_a_commit(root, snapshots):
    base = commit(root)
    (root / "t/x.py").write_text("2\n")
    found = answer(snapshots, base, "")
    assert (found.why, found.undecided) == ({"//t:x": "//t:x.py has changed"}, None)


def test_unknown_revision_means_every_test(root, snapshots):
    commit(root)
    found = answer(snapshots, "nowhere", "")
    assert found.undecided == "this clone does not have the revision nowhere"
    assert found.targets == ["//t:x"]


@pytest.mark.parametrize("broken_now", [True, False])
def test_query_error_means_every_test(root, snapshots, broken_now):
    (root / "broken").write_text("")
    base = commit(root)
    if not broken_now:
        (root / "broken").unlink()
    found = answer(snapshots, base, "")
    assert "no such package" in found.undecided
    assert found.targets == (None if broken_now else ["//t:x"])


def test_a_revision_is_not_an_option(root):
    commit(root)
    with pytest.raises(UndecidedError):
        commit_of(root, "--all")


def test_seed_has_settings_and_starlark_but_not_the_lock(root):
    (root / LOCK).parent.mkdir(parents=True)
    (root / LOCK).write_text("")
    (root / "ci.bazelrc").write_text("")
    (root / ".bazelrc").write_text(
        "import %workspace%/ci.bazelrc\ntry-import %workspace%/ignored.bazelrc\n"
    )
    (root / "ignored.bazelrc").write_text("")
    found = seed_files(root, [])
    assert {".bazelrc", "WORKSPACE", "MODULE.bazel", "ci.bazelrc", "t/rules.bzl"} <= found
    assert not {LOCK, "ignored.bazelrc"} & found
    assert LOCK in seed_files(root, ["//" + LOCK.replace("/lock", ":lock")])


def test_seed_has_the_version_of_bazel(root):
    commit(root)
    before = take(root).seed
    (root / "bazelw").write_text(BAZELW.replace("4.2.3", "7.7.1"))
    after = take(root).seed
    assert {name for name in after if after[name] != before[name]} == {BAZEL}
