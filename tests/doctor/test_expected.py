"""The lock's reader, and that lock, pins and pyproject.toml expect the same versions."""

import json
import os
import re
import shutil
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.doctor.expected import LOCKS, PINS, ROOT, read_expected
from slime.doctor.lock_file import LockError, read_lock

TREE = Path(os.environ["SLIME_RUNFILES"])
DIGEST = "0123456789abcdef" * 4


def test_reads_beside_itself():
    assert ROOT.samefile(TREE)


@pytest.mark.parametrize("device", LOCKS)
def test_versions_of_the_project_are_the_locked_ones(device: str):
    """pyproject.toml pins with `==` what slime cannot run without in exactly this version."""
    project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    expected, extra = read_expected(device), project["optional-dependencies"]["cuda"]
    declared = project["dependencies"] + [one for one in extra if device == "cuda" or "==" in one]
    pinned = dict(line.split("==") for line in declared if "==" in line)
    assert pinned.keys() >= {"megatron-core", "sglang", "sglang-router"}
    assert {name: expected.locked[name] for name in pinned} == pinned
    names = {re.match(r"[\w-]+", line)[0] for line in declared}
    assert names <= expected.locked.keys()


def test_pins_are_what_a_cuda_machine_is_compared_with():
    pins = json.loads((TREE / PINS).read_text())
    expected = read_expected("cuda")
    assert expected.pinned == {name: pin["version"] for name, pin in pins["packages"].items()}
    assert ".".join(map(str, expected.python)) == pins["python"]["version"]
    assert pins["cuda"]["release"].startswith(pins["cuda"]["version"] + ".")
    for name in expected.pinned.keys() & expected.locked.keys():
        assert expected.pinned[name] == expected.locked[name], name


def test_the_lock_of_cpus_is_for_bazels_python():
    header = (TREE / LOCKS["cpu"]).read_text().splitlines()[1]
    major, minor = read_expected("cpu").python
    assert f"CPython {major}.{minor}," in header


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the files, to be damaged."""
    for file in (*LOCKS.values(), PINS):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copyfile(TREE / file, tmp_path / file)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one=1", "lock.txt:1: expected `name==version`, found `one=1`"),
        ("# a\none==1", "lock.txt:2: one==1: expected one `--hash=sha256:<64 hex digits>`"),
        (f"one==1 --hash=sha256:{DIGEST[:-1]}", "found `--hash=sha256:0123456789"),
        (f"one==1 --hash=md5:{DIGEST}", "found `--hash=md5:0123456789"),
        (f"one==1 --hash=sha256:{DIGEST} --hash=sha256:{DIGEST}", "one==1: expected one"),
        (f"One==1 --hash=sha256:{DIGEST}", "found `One==1`"),
        (f"one==1 \\\n --hash=sha256:{DIGEST}\nonly", "lock.txt:3: expected"),
        (
            f"one==1 --hash=sha256:{DIGEST}\none==2 --hash=sha256:{DIGEST}",
            "lock.txt:2: one is locked twice: 1 and 2",
        ),
        ("one==1 \\", "lock.txt:1: one==1: expected one"),
    ],
)
def test_line_that_is_no_lock(tmp_path: Path, text: str, message: str):
    (tmp_path / "lock.txt").write_text(text)
    with pytest.raises(LockError) as caught:
        read_lock(tmp_path / "lock.txt")
    assert message in str(caught.value)


@settings(deadline=None)  # it writes files
@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", fullmatch=True),
        st.tuples(st.from_regex(r"[0-9][0-9a-z.]*", fullmatch=True), st.binary(min_size=32)),
        max_size=9,
    )
)
def test_reads_what_is_written(packages: dict[str, tuple[str, bytes]]):
    lines = ["# comment\n", "\n"]
    for name, (version, digest) in packages.items():
        lines.append(f"{name}=={version} \\\n    --hash=sha256:{digest[:32].hex()}\n")
    file = Path(os.environ.get("TEST_TMPDIR", "/tmp"), f"lock-{os.getpid()}.txt")
    file.write_text("".join(lines))
    read = {one.name: (one.version, one.sha256) for one in read_lock(file).values()}
    file.unlink()
    assert read == {name: (version, d[:32].hex()) for name, (version, d) in packages.items()}


@pytest.mark.parametrize(
    "damage", ["", "[]", '{"packages": {}}', '{"python": {"version": "three"}, "packages": {}}']
)
def test_pins_that_cannot_be_read(root: Path, damage: str):
    (root / PINS).write_text(damage)
    with pytest.raises(LockError, match=r"nix/pins.json: cannot be read"):
        read_expected("cuda", root)


def test_no_lock_beside_the_installation(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        read_expected("cpu", tmp_path)
