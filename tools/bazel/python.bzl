"""The Python toolchain: an empty virtual environment over an interpreter found on PATH.

It sees neither the host's packages nor the user's. It lies in the user-level store, so that its path, which is part of every
action's key, is the same in every clone.
"""

# Run by the interpreter found; prints the path of the environment's interpreter.
_MAKE_ENVIRONMENT = """
import hashlib, os, subprocess, sys
cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
store = os.environ.get("SLIME_PYPI_STORE") or os.path.join(cache, "slime-pypi")
base = os.path.realpath(sys._base_executable)
final = os.path.join(store, "python", hashlib.sha256((base + sys.version).encode()).hexdigest()[:16])
if not os.path.exists(os.path.join(final, "pyvenv.cfg")):
    temporary = "%s.%d" % (final, os.getpid())
    subprocess.run([base, "-I", "-m", "venv", "--without-pip", "--symlinks", temporary], check=True)
    try:
        os.rename(temporary, final)
    except OSError:  # another build was first
        pass
print(os.path.join(final, "bin", "python3"))
"""

_BUILD = """load("@rules_python//python:defs.bzl", "py_runtime", "py_runtime_pair")

py_runtime(
    name = "runtime",
    interpreter_path = "{path}",
    python_version = "PY3",
    stub_shebang = "#!{path}",
)

py_runtime_pair(
    name = "pair",
    py3_runtime = ":runtime",
)

toolchain(
    name = "toolchain",
    toolchain = ":pair",
    toolchain_type = "@bazel_tools//tools/python:toolchain_type",
    visibility = ["//visibility:public"],
)
"""

def find_python(rctx, version = "3.11"):
    """The host interpreter of that version: `python3.11`, else a `python3` that is one."""
    for name in ["python" + version, "python3"]:
        python = rctx.which(name)
        check = "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{}')".format(version)
        if python and not rctx.execute([python, "-I", "-c", check]).return_code:
            return python
    fail("Python %s is not on PATH. Install it (Debian 12: apt-get install python3 python3-pip)." % version)

def _local_python_impl(rctx):
    result = rctx.execute([find_python(rctx, rctx.attr.version), "-I", "-c", _MAKE_ENVIRONMENT])
    if result.return_code:
        fail("cannot make an empty virtual environment:\n%s" % result.stderr)
    rctx.file("BUILD.bazel", _BUILD.format(path = result.stdout.strip()))

local_python = repository_rule(
    implementation = _local_python_impl,
    attrs = {"version": attr.string(mandatory = True)},
    environ = ["PATH", "SLIME_PYPI_STORE", "XDG_CACHE_HOME"],
    configure = True,
)
