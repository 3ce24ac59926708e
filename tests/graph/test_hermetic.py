"""A test sees its declared packages, the loopback device and its own folders; nothing else."""

import errno
import importlib.util
import os
import site
import socket
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

# Bazel falls back to a weaker sandbox where the system forbids namespaces (some containers).
needs_namespaces = pytest.mark.skipif(
    "/linux-sandbox/" not in os.environ["TEST_SRCDIR"], reason="no namespaces for Bazel here"
)

# This target declares nothing: only pytest, which every test gets, and what pytest needs.
PRESENT = {"iniconfig", "packaging", "pluggy", "pygments", "pytest"}


def test_only_declared_packages_are_present():
    assert {dist.metadata["Name"].lower() for dist in distributions()} == PRESENT


@pytest.mark.parametrize(
    "name", ["pip", "setuptools", "numpy", "torch", "slime", "ci", "_distutils_hack"]
)
def test_undeclared_code_is_not_importable(name):
    assert importlib.util.find_spec(name) is None


def test_user_site_is_off():
    assert not site.ENABLE_USER_SITE
    assert not [path for path in sys.path if "dist-packages" in path or "/.local/" in path]


def test_a_child_sees_the_same():
    code = "import importlib.util as u, pytest; print([u.find_spec(n) for n in ('pip', 'numpy')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[None, None]\n", "")


def test_environment():
    assert os.environ["HOME"] == os.environ["TEST_TMPDIR"]
    assert os.environ["OMP_NUM_THREADS"] == "1"
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert not {"http_proxy", "https_proxy", "PIP_CONFIG_FILE"} & set(os.environ)


@needs_namespaces
def test_source_tree_is_read_only():
    source = Path(__file__).resolve()
    with pytest.raises(OSError) as caught:
        source.with_name("written_by_a_test").touch()
    assert caught.value.errno == errno.EROFS


def test_own_folder_is_writable(tmp_path):
    (tmp_path / "file").write_text("x")
    assert tmp_path.is_relative_to(os.environ["TEST_TMPDIR"])


@needs_namespaces
def test_no_network():
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    with pytest.raises(OSError) as caught:
        socket.create_connection(("192.0.2.1", 9), timeout=5)
    assert caught.value.errno == errno.ENETUNREACH


def test_loopback_works():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=5) as client,
    ):
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"ping")
            assert accepted.recv(4) == b"ping"
