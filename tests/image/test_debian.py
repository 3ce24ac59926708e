"""The base layer against what dpkg itself says of the same packages."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from ci.image.debian import ar_members, base_layer, control, merged
from ci.image.locked import ImageError
from ci.image.members import with_folders


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A package's files: a program, a link to it, a hard link, a set-uid file, an own folder."""
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/tool").write_bytes(b"#!/bin/sh\n")
    (tree / "bin/tool").chmod(0o755)
    (tree / "bin/link").symlink_to("tool")
    os.link(tree / "bin/tool", tree / "bin/again")
    (tree / "usr/lib").mkdir(parents=True)
    (tree / "usr/lib/data").write_bytes(bytes(range(256)) * 3)
    (tree / "usr/lib/helper").write_bytes(b"")
    (tree / "usr/lib/helper").chmod(0o4755)
    (tree / "tmp").mkdir()
    (tree / "tmp").chmod(0o1777)
    masters = tree / "usr/share/base-passwd"
    masters.mkdir(parents=True)
    (masters / "passwd.master").write_text("root::0:0:root:/root:/bin/sh\n")
    (masters / "group.master").write_text("root::0:\n")
    return tree


def test_same_files_as_dpkg_unpacks(make_deb, tree: Path):
    deb = make_deb("tool", tree)
    dpkg = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True)
    members = base_layer({"tool": deb})
    with tarfile.open(fileobj=io.BytesIO(dpkg.stdout)) as archive:
        for entry in archive:
            if entry.name in (".", "./"):
                continue
            info, opener = members[merged(entry.name)]
            assert (info.isdir(), info.issym()) == (entry.isdir(), entry.issym())
            if not info.issym():
                assert info.mode == entry.mode, entry.name
            if opener is not None:
                with opener() as file:
                    assert file.read() == archive.extractfile(entry).read()
    assert {info.uid for info, _ in members.values()} == {0}


def test_what_scripts_would_have_done(make_deb, tree: Path):
    deb = make_deb("tool", tree)
    members = base_layer({"tool": deb})
    assert members["bin"][0].linkname == "usr/bin"
    assert members["usr/bin/again"][1]().read() == b"#!/bin/sh\n"
    assert members["etc/passwd"][1]().read() == b"root::0:0:root:/root:/bin/sh\n"
    said = subprocess.run(["dpkg-deb", "--field", deb], check=True, capture_output=True, text=True)
    assert members["var/lib/dpkg/status.d/tool"][1]().read().decode() == said.stdout
    assert control(deb) == said.stdout


def test_a_later_package_wins_and_folders_come_first(make_deb, tmp_path: Path):
    for number in (1, 2):
        (tmp_path / f"t{number}/etc/a").mkdir(parents=True)
        (tmp_path / f"t{number}/etc/a/file").write_text(str(number))
    debs = {f"p{number}": make_deb(f"p{number}", tmp_path / f"t{number}") for number in (1, 2)}
    members = base_layer(debs)
    assert members["etc/a/file"][1]().read() == b"2"
    order = list(with_folders(members))
    assert order.index("etc") < order.index("etc/a") < order.index("etc/a/file")


def test_no_debian_package(tmp_path: Path):
    wrong = tmp_path / "libc6_2.0_amd64.deb"
    wrong.write_bytes(b"<html>not found</html>")
    with pytest.raises(ImageError, match="libc6_2.0_amd64.deb: expected a Debian package"):
        list(ar_members(wrong))
