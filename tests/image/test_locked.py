"""Files against their lock: what is wrong is said with its name, the expected and the found."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ci.image.build import main
from ci.image.locked import ImageError, chosen, match
from slime.doctor.lock_file import read_lock


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_files_are_found_by_content(make_wheel, write_lock, tmp_path: Path):
    one, two = make_wheel("one"), make_wheel("two_words")
    lock = write_lock("lock.txt", "1.0", one=one, two_words=two)
    renamed = one.rename(tmp_path / "anything.whl")
    matched = match(read_lock(lock).values(), [renamed, two])
    assert {locked.pin: path for locked, path in matched.items()} == {
        "one==1.0": renamed,
        "two-words==1.0": two,
    }


def test_every_wrong_file_is_named(make_wheel, write_lock):
    good, bad, gone = make_wheel("good"), make_wheel("bad"), make_wheel("gone")
    lock = write_lock("lock.txt", "1.0", good=good, bad=bad, gone=gone)
    was, lost = digest(bad), digest(gone)
    content = bytearray(bad.read_bytes())
    content[40] ^= 1
    bad.write_bytes(content)
    gone.unlink()
    with pytest.raises(ImageError) as error:
        match(read_lock(lock).values(), [good, bad])
    assert str(error.value).splitlines() == [
        "files that do not fit the lock:",
        "bad==1.0",
        f"  expected: {was}",
        f"  found:    {digest(bad)} ({bad.name})",
        "gone==1.0",
        f"  expected: {lost}",
        "  found:    no such file",
    ]


def test_names_are_known(make_wheel, write_lock):
    lock = read_lock(write_lock("lock.txt", "1.0", b=make_wheel("b"), a=make_wheel("a")))
    assert [one.name for one in chosen(lock, [])] == ["a", "b"]
    assert [one.name for one in chosen(lock, ["b"])] == ["b"]
    with pytest.raises(ImageError, match="not in the lock: c, d"):
        chosen(lock, ["d", "a", "c"])


def test_the_program_refuses_a_wrong_line(write_lock, tmp_path: Path, capsys):
    lock = write_lock("requirements.lock.txt", "1.0")
    lock.write_text("numpy==2.0 --hash=sha256:abc\n")
    options = [f"--requirements={lock}", f"--source={tmp_path}", f"--out={tmp_path / 'out'}"]
    assert main(options) == 1
    said = capsys.readouterr().err
    assert "requirements.lock.txt:1: numpy==2.0: expected one `--hash=sha256:<64 hex" in said
    assert "found `--hash=sha256:abc`" in said


@pytest.mark.parametrize("kind", ["wheel", "deb"])
def test_the_program_refuses_a_tampered_file(
    make_wheel: Callable[..., Path],
    make_deb: Callable[..., Path],
    write_lock: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture,
    kind: str,
):
    wheel, deb = make_wheel("tool"), make_deb("libtool", tmp_path / "tree")
    wheels = write_lock("requirements.lock.txt", "1.0", tool=wheel)
    debs = write_lock("base.deb.lock", "1:2.0~rc1+b3", libtool=deb)
    tampered = wheel if kind == "wheel" else deb
    was = digest(tampered)
    tampered.write_bytes(tampered.read_bytes() + b"\n")
    options = [f"--requirements={wheels}", f"--deb-lock={debs}", f"--source={tmp_path}"]
    options += ["--wheels", str(wheel.parent), "--debs", str(deb.parent)]
    out = tmp_path / "out"
    assert main([*options, f"--out={out}"]) == 1
    said = capsys.readouterr().err
    name = "tool==1.0" if kind == "wheel" else "libtool==1:2.0~rc1+b3"
    assert name in said
    assert f"expected: {was}" in said
    assert f"found:    {digest(tampered)} ({tampered.name})" in said
    assert not out.exists()
