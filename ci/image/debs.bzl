"""The repository of the base layer's Debian packages: nothing is fetched until an image needs it."""

def _debs_impl(rctx):
    script = rctx.path(rctx.attr._script)
    lock = rctx.path(rctx.attr.lock)
    rctx.report_progress("fetching Debian packages")
    result = rctx.execute(["python3", "-I", script, "fetch", lock, rctx.path(".")], timeout = 3600)
    if result.return_code:
        fail("%s: %s" % (rctx.attr.name, result.stderr.strip()))
    rctx.file("BUILD.bazel", """filegroup(
    name = "debs",
    srcs = glob(["*.deb"]),
    visibility = ["//visibility:public"],
)
""")

debs = repository_rule(
    implementation = _debs_impl,
    attrs = {
        "lock": attr.label(mandatory = True),
        "_script": attr.label(default = "//ci/image:base_debs.py"),
    },
    environ = ["PATH", "SLIME_DEB_STORE"],
)

def image_repositories():
    """Declares `@image_debs`, the files that base.deb.lock names."""
    debs(
        name = "image_debs",
        lock = "//ci/image:base.deb.lock",
    )
