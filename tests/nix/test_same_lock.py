"""pip, Bazel, Nix and slime's own reader see the same names, versions and hashes in the locks."""

import json
from types import SimpleNamespace

import pytest
from pip._internal.network.session import PipSession
from pip._internal.req import parse_requirements
from pip._internal.req.constructors import install_req_from_parsed_requirement

from slime.doctor.lock_file import read_lock
from tests.nix.conftest import ROOT, Flake

LOCKS = {"cpu": "requirements.lock.txt", "cuda": "requirements.cuda.lock.txt"}
Seen = set[tuple[str, str, str]]  # name, version, sha256


def by_pip(file: str) -> Seen:
    """What pip itself reads, as `pip install --require-hashes -r` does."""
    parsed = parse_requirements(str(ROOT / file), session=PipSession())
    wanted = [install_req_from_parsed_requirement(line) for line in parsed]
    return {
        (one.name, one.specifier.__str__().removeprefix("=="), digest)
        for one in wanted
        for digest in one.hash_options["sha256"]
    }


def by_slime(file: str) -> Seen:
    return {(one.name, one.version, one.sha256) for one in read_lock(ROOT / file).values()}


@pytest.mark.parametrize("file", LOCKS.values())
def test_pip_and_slime(file: str):
    assert by_pip(file) == by_slime(file)
    assert len(by_pip(file)) > 100


def test_bazel():
    """The table from which Bazel makes its repositories. It has no use for the CUDA lock."""
    names = {"struct": SimpleNamespace}
    exec((ROOT / "third_party/pypi/lock.bzl").read_text(), names)
    packages = names["PACKAGES"].items()
    assert {(name, p.version, d) for name, p in packages for d in p.sha256} == by_pip(LOCKS["cpu"])


@pytest.mark.parametrize("platform", LOCKS)
def test_nix(flake: Flake, platform: str):
    seen = json.loads(flake.nix("eval", "--json", f".#lib.locks.{platform}"))
    assert {(one["name"], one["version"], one["sha256"]) for one in seen.values()} == by_pip(
        LOCKS[platform]
    )


@pytest.mark.parametrize("file", [*LOCKS.values(), "flake.nix", "flake.lock", "nix/pins.json"])
def test_names_no_registry_host(file: str):
    text = (ROOT / file).read_text()
    assert "://" not in text and "pypi" not in text
