"""What does not fit together fails evaluation, with both values; one case for each assertion."""

import pytest

from tests.nix.conftest import STUB, Flake

CPU, CUDA, PINS = "requirements.lock.txt", "requirements.cuda.lock.txt", "nix/pins.json"
STAND_IN = "nix/stub/default.nix"
OTHER = "0" * 64
MEGATRON = "3fb26cb407aa3c4b609c08664022c08146f1648b3d6f2ef2bbe9d3b1294ace61"
DEEP_EP = "sha256-xURR3uBAwKjDTNEG9p/vRRhH4Ldiz/u6kD/a+DPn5/Q="


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        pytest.param(
            *(STAND_IN, '"deep-ep" "1.2.1"', '"deep-ep" "1.3.0"'),
            "deep-ep: version differs: nix/pins.json has 1.2.1, nixpkgs has 1.3.0",
            id="nixpkgs has another version",
        ),
        pytest.param(
            *(STAND_IN, DEEP_EP, "sha256-other"),
            f"hash of the source differs: {PINS} has {DEEP_EP}, nixpkgs has sha256-other",
            id="nixpkgs builds from another source",
        ),
        pytest.param(
            *(STAND_IN, '"0.0.9.post1"', '"0.0.10"'),
            f"torch-memory-saver: version differs: {PINS} has 0.0.9.post1, nixpkgs has 0.0.10",
            id="torch-memory-saver",
        ),
        pytest.param(
            *(STAND_IN, '"2.18"', '"2.17.1"'),
            "transformer-engine: version differs: nix/pins.json has 2.18, nixpkgs has 2.17.1",
            id="transformer-engine",
        ),
        pytest.param(
            *(STAND_IN, 'cudaMajorMinorVersion = "13.0"', 'cudaMajorMinorVersion = "12.9"'),
            "CUDA: version differs: nix/pins.json has 13.0, nixpkgs has 12.9",
            id="CUDA",
        ),
        pytest.param(
            *(STAND_IN, '"13.0.96"', '"13.0.88"'),
            "CUDA: runtime differs: nix/pins.json has 13.0.96, nixpkgs has 13.0.88",
            id="CUDA's runtime",
        ),
        pytest.param(
            *(STAND_IN, 'pythonVersion = "3.12"', 'pythonVersion = "3.13"'),
            "Python: version differs: nix/pins.json has 3.12, nixpkgs has 3.13",
            id="Python",
        ),
        pytest.param(
            *(PINS, MEGATRON, OTHER),
            f"megatron-core: sha256 differs: nix/pins.json has {OTHER}, {CUDA} has {MEGATRON}",
            id="a pin's hash",
        ),
        pytest.param(
            *(CUDA, "sglang==0.5.23", "sglang==0.5.24"),
            f"sglang: version differs: nix/pins.json has 0.5.23, {CUDA} has 0.5.24",
            id="a locked version",
        ),
        pytest.param(
            *(CUDA, "torch-memory-saver==0.0.9.post1", "torch-memory-saver==0.0.10"),
            f"torch-memory-saver: version differs: {PINS} has 0.0.9.post1, {CUDA} has 0.0.10",
            id="the lock and nixpkgs",
        ),
        pytest.param(
            *(CUDA, "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-runtime==13.0.97"),
            f"nvidia-cuda-runtime: version differs: nix/pins.json has 13.0.96, {CUDA} has 13.0.97",
            id="the lock's CUDA",
        ),
        pytest.param(
            *(PINS, '"sglang": {', '"sglong": {'),
            f"nix/pins.json: sglong is not in {CUDA}",
            id="a pin without a wheel",
        ),
    ],
)
def test_disagreement(flake: Flake, file: str, old: str, new: str, expected: str):
    flake.edit(file, old, new)
    assert expected in flake.error("flake", "check", ".", "--no-build", *STUB)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("accelerate==1.15.0", "accelerate>=1.15.0", "accelerate>=1.15.0 --hash=sha256:97eacca0"),
        ("--hash=sha256:97eacca0", "--hash=sha256:97eacca", "accelerate==1.15.0 --hash=sha256:97"),
        ("--hash=sha256:97eacca0", "--hash=sha1:97eacca0", "accelerate==1.15.0 --hash=sha1:97eac"),
        (
            "accelerate==1.15.0 \\\n",
            f"accelerate==1.15.0 \\\n    --hash=sha256:{OTHER} \\\n",
            f"accelerate==1.15.0 --hash=sha256:{OTHER}",
        ),
        ("accelerate==1.15.0 \\\n", "accelerate==1.15.0\n", "accelerate==1.15.0`"),
    ],
    ids=["no exact version", "short hash", "another kind of hash", "two hashes", "no hash"],
)
def test_line_that_is_no_lock(flake: Flake, old: str, new: str, found: str):
    flake.edit(CPU, old, new)
    error = " ".join(flake.error("eval", ".#lib.locks.cpu.torch").split())
    assert f"{CPU}: expected `name==version --hash=sha256:<64 hex digits>`, found `" in error
    assert " ".join(found.split()) in error


def test_package_locked_twice(flake: Flake):
    line = f"rich==1.0 \\\n    --hash=sha256:{OTHER}\n"
    flake.edit(CPU, "rich==", f"{line}rich==")
    assert f"{CPU}: rich is locked twice" in flake.error("eval", ".#lib.locks.cpu.torch")


def test_wheel_that_is_not_in_the_lock(flake: Flake):
    flake.edit("flake.nix", "lock = locks.cpu;", 'lock = locks.cpu; packages = [ "nowhere" ];')
    error = flake.error("eval", ".#packages.x86_64-linux.site-cpu.drvPath")
    assert "slime-site-cpu: nowhere is not in the lock" in error


def test_image_with_a_wheel_that_is_not_in_the_lock(flake: Flake):
    flake.edit(CPU, "orjson==", "orjsonn==")
    error = flake.error("eval", ".#packages.x86_64-linux.image-small.drvPath")
    assert "slime-small: orjson is not in the lock" in error
