"""The whole image: unpacked by a tool of others, and run where nothing of this machine is seen.

Needs umoci and bwrap (Debian: umoci, bubblewrap) and takes minutes, so it runs only when asked for.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.image.conftest import ROOT
from tests.image.test_sbom import check

CPU = ROOT / "ci/image/cpu"
pytestmark = pytest.mark.skipif(not CPU.exists(), reason="Bazel builds the image")
QUICK_START = "--config=examples/quickstart/config.yaml"
ENTRY = ("python3", "-m", "slime.train", QUICK_START)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's files, with the quick start's model and data beside its configuration."""
    bundle = tmp_path_factory.mktemp("image") / "bundle"
    command = ["umoci", "unpack", "--rootless", "--image", f"{CPU}/image:latest", str(bundle)]
    subprocess.run(command, check=True, capture_output=True)
    example = bundle / "rootfs/opt/slime/examples/quickstart"
    for name in ("data", "model"):
        shutil.copytree(ROOT / "examples/quickstart" / name, example / name)
    return bundle / "rootfs"


def run(root: Path, *command: str) -> str:
    """Output of a command in the image: own processes, own loopback and no other network."""
    (described,) = json.loads((CPU / "image/index.json").read_text())["manifests"]
    blobs = CPU / "image/blobs"
    manifest = json.loads((blobs / described["digest"].replace(":", "/")).read_text())
    config = json.loads((blobs / manifest["config"]["digest"].replace(":", "/")).read_text())
    started = config["config"]
    sandbox = ["bwrap", "--bind", str(root), "/", "--proc", "/proc", "--dev", "/dev"]
    sandbox += ["--ro-bind", "/sys", "/sys", "--tmpfs", "/dev/shm", "--tmpfs", "/tmp"]
    sandbox += ["--unshare-all", "--die-with-parent", "--clearenv", "--setenv", "HOME", "/root"]
    for variable in started["Env"]:
        sandbox += ["--setenv", *variable.split("=", 1)]
    sandbox += ["--setenv", "OMP_NUM_THREADS", "1", "--chdir", started["WorkingDir"]]
    done = subprocess.run([*sandbox, *command], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_python_and_packages_are_the_images_own(root: Path):
    code = "import sys, torch, ssl, sqlite3, lzma, ctypes; print(sys.prefix, torch.__file__)"
    said = run(root, "python3", "-c", code)
    assert said.split() == ["/usr", "/usr/local/lib/python3.11/dist-packages/torch/__init__.py"]


def test_the_doctor_finds_what_is_locked(root: Path):
    said = run(root, "python3", "-m", "slime.doctor")
    assert "as locked in requirements.lock.txt" in said
    assert "0 problems" in said


def test_shows_the_plan(root: Path):
    assert "rollout manager" in run(root, *ENTRY, "--dry-run")


def test_one_rollout(root: Path):
    said = run(root, *ENTRY, "--num-rollout=1", "--skip-eval-before-train", "--run-dir=/tmp/run")
    assert "finished 1 rollouts" in said


def test_sbom_lists_both_locks():
    sbom = json.loads((CPU / "sbom.spdx.json").read_text())
    check(sbom)
    purls = [p["externalRefs"][0]["referenceLocator"] for p in sbom["packages"][1:]]
    assert sum(purl.startswith("pkg:pypi/") for purl in purls) > 150
    assert sum(purl.startswith("pkg:deb/") for purl in purls) > 50
