"""One lazily fetched repository per locked wheel, and the hub `@pypi` that names them all.

A wheel is unpacked once into a user-level store (store.py). Its repository holds a link to it and a stamp (name, version,
digest): Bazel sees one small file per wheel instead of thousands, and rebuilds what depends on a wheel when the stamp changes.
"""

load("//tools/bazel:python.bzl", "find_python")
load(":lock.bzl", "PACKAGES")

_BUILD = """load("@rules_python//python:defs.bzl", "py_library")

py_library(
    name = "pkg",
    data = ["stamp"],
    visibility = ["//visibility:public"],
    deps = {deps},
)

# The wheel itself, for images.
filegroup(
    name = "whl",
    srcs = glob(["*.whl"]),
    visibility = ["//visibility:public"],
)
"""
_ALIASES = """alias(name = "{0}", actual = "@pypi_{0}//:pkg", visibility = ["//visibility:public"])
alias(name = "whl", actual = "@pypi_{0}//:whl", visibility = ["//visibility:public"])
"""

def _target(package):
    return package.replace("-", "_")

def _closure(package):
    """The package and all it needs, nearest first: what one download brings in."""
    found = [package]
    for _ in range(len(PACKAGES)):
        more = [dep for name in found for dep in PACKAGES[name].deps if dep not in found]
        if not more:
            break
        found += {name: None for name in more}.keys()
    return found

def _requirement(package):
    locked = PACKAGES[package]
    return " ".join(["%s==%s" % (package, locked.version)] + ["--hash=sha256:" + digest for digest in locked.sha256])

def _wheel_impl(rctx):
    rctx.report_progress("fetching %s" % rctx.attr.requirements[0].split(" ")[0])
    command = [find_python(rctx), "-I", rctx.path(rctx.attr._store), rctx.path(".")] + rctx.attr.requirements
    result = rctx.execute(command, timeout = 3600, quiet = False)
    if result.return_code:
        fail(result.stderr[max(result.stderr.rfind("\n\n"), 0):].strip())
    deps = ["@pypi_%s//:pkg" % _target(dep) for dep in rctx.attr.needs]
    rctx.file("BUILD.bazel", _BUILD.format(deps = repr(deps)))

_wheel = repository_rule(
    implementation = _wheel_impl,
    attrs = {
        "requirements": attr.string_list(mandatory = True),
        "needs": attr.string_list(),
        "_store": attr.label(default = "//third_party/pypi:store.py"),
    },
    environ = ["SLIME_PYPI_STORE"],
)

def _hub_impl(rctx):
    rctx.file("BUILD.bazel", "")
    for package in rctx.attr.packages:
        rctx.file(_target(package) + "/BUILD.bazel", _ALIASES.format(_target(package)))

_hub = repository_rule(implementation = _hub_impl, attrs = {"packages": attr.string_list(mandatory = True)})

def pypi_repositories():
    """Declares `@pypi` and one repository per locked package; nothing is fetched until a target needs it."""
    for package, locked in PACKAGES.items():
        _wheel(
            name = "pypi_" + _target(package),
            requirements = [_requirement(name) for name in _closure(package)],
            needs = locked.deps,
        )
    _hub(name = "pypi", packages = PACKAGES.keys())
