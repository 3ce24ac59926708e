"""The flake as it is: its outputs evaluate, and without nixpkgs those that need none do."""

import json

import pytest

from tests.nix.conftest import ROOT, STUB, Flake

SYSTEM = "x86_64-linux"
OUTPUTS = {
    "apps": {"train"},
    "checks": {"pins"},
    "devShells": {"cpu", "cuda", "default", "host"},
    "packages": {"image-cpu", "image-cuda", "image-small", "site-cpu", "site-cuda"},
}


def test_every_output_evaluates_with_the_stub(flake: Flake):
    flake.nix("flake", "check", ".", "--no-build", *STUB)


def test_outputs(flake: Flake):
    shown = json.loads(flake.nix("flake", "show", ".", "--json", *STUB))
    assert {kind: set(shown[kind][SYSTEM]) for kind in OUTPUTS} == OUTPUTS
    assert shown["formatter"][SYSTEM]["type"] == "derivation"


@pytest.mark.parametrize(
    "output",
    [f"checks.{SYSTEM}.pins", f"devShells.{SYSTEM}.host", f"packages.{SYSTEM}.site-cpu"],
)
def test_needs_no_nixpkgs(flake: Flake, output: str):
    """nixpkgs is locked and cannot be fetched here."""
    path = flake.nix("eval", "--raw", f".#{output}.drvPath")
    assert path.endswith(".drv")


def test_asking_for_nixpkgs_fails_without_network(flake: Flake):
    """The test above can tell: what needs nixpkgs does ask for it."""
    assert "NixOS/nixpkgs" in flake.error("eval", "--raw", f".#devShells.{SYSTEM}.cpu.drvPath")


def test_pins_are_the_file(flake: Flake):
    pins = json.loads((flake.folder / "nix/pins.json").read_text())
    assert json.loads(flake.nix("eval", "--json", ".#lib.pins")) == pins
    for name, pin in pins["packages"].items():
        assert pin.keys() >= {"from", "licence", "repository", "rev", "version"}, name
        assert ("hash" in pin) != ("sha256" in pin), name


def test_checked_pins_build(flake: Flake):
    flake.nix("build", f".#checks.{SYSTEM}.pins")
    built = json.loads((flake.folder / "result").read_text())
    assert built == json.loads((flake.folder / "nix/pins.json").read_text())


def test_lock_is_fresh(flake: Flake):
    flake.nix("flake", "metadata", ".", "--no-update-lock-file", "--json")


def test_stale_lock_is_refused(flake: Flake):
    flake.edit("flake.nix", "  outputs =", '  inputs.more.url = "path:./nix/stub";\n  outputs =')
    flake.edit("flake.nix", "{ self, nixpkgs }:", "{ self, nixpkgs, more }:")
    error = flake.error("flake", "metadata", ".", "--no-update-lock-file", "--json")
    assert "requires lock file changes" in error


def test_lock_names_the_revision_that_the_flake_asks_for():
    node = json.loads((ROOT / "flake.lock").read_text())["nodes"]["nixpkgs"]
    rev = node["locked"]["rev"]
    assert node["original"]["rev"] == rev
    assert f'"github:NixOS/nixpkgs/{rev}"' in (ROOT / "flake.nix").read_text()


def test_host_shell(flake: Flake):
    """`nix develop .#host` gives the machine's own Python."""
    command = ("develop", ".#host", "-c", "python3", "-c", "print(6 * 7)")
    assert flake.nix(*command).splitlines()[-1] == "42"


def test_the_stub_says_what_it_is(flake: Flake):
    text = (flake.folder / "nix/stub/default.nix").read_text()
    assert text.startswith("# FOR EVALUATION ONLY.")
    error = flake.error("build", f".#devShells.{SYSTEM}.cpu", *STUB)
    assert "nix/stub is for evaluation only" in error


def test_no_folder_of_certificates_is_mounted(flake: Flake):
    for file in [flake.folder / "flake.nix", *(flake.folder / "nix").rglob("*")]:
        if file.is_file() and "sandbox-paths" in (text := file.read_text()):
            settings = [line for line in text.splitlines() if not line.startswith("#")]
            assert not [line for line in settings if "sandbox-paths" in line], file
