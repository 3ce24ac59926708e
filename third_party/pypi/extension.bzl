"""The same repositories for Bazel >= 7, which reads MODULE.bazel instead of WORKSPACE."""

load("//ci/image:debs.bzl", "image_repositories")
load("//tools/bazel:python.bzl", "local_python")
load(":pypi.bzl", "pypi_repositories")

def _impl(mctx):
    pypi_repositories()
    image_repositories()
    local_python(name = "slime_python", version = "3.11")
    return mctx.extension_metadata(root_module_direct_deps = ["image_debs", "pypi", "slime_python"], root_module_direct_dev_deps = [])

pypi = module_extension(implementation = _impl)
