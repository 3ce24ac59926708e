"""The rule that makes an image of slime, with the writer that Nix uses too (build.py)."""

load("//third_party/pypi:lock.bzl", "PACKAGES")

def wheels_of(name, packages = PACKAGES.keys(), **kwargs):
    """The wheel files of these packages of the lock; of all without `packages`."""
    native.filegroup(
        name = name,
        srcs = ["@pypi//%s:whl" % package.replace("-", "_") for package in packages],
        **kwargs
    )

def _sources(ctx):
    """First-party files of the libraries and of `data`; what other targets made stays out."""
    files = depset(ctx.files.data, transitive = [dep[DefaultInfo].default_runfiles.files for dep in ctx.attr.deps])
    return [file for file in files.to_list() if file.is_source and not file.owner.workspace_name]

def _source_list_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    paths = ctx.actions.args()
    paths.set_param_file_format("multiline")
    paths.add_all(_sources(ctx))
    ctx.actions.write(out, paths)
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles(files = [out]))]

_SOURCES = {
    "data": attr.label_list(allow_files = True, doc = "source files beside those of `deps`"),
    "deps": attr.label_list(doc = "libraries, with all that they depend on"),
}

source_list = rule(
    implementation = _source_list_impl,
    doc = "The paths of the files that an image with the same `deps` and `data` has of the checkout.",
    attrs = _SOURCES,
)

def _image_impl(ctx):
    out = ctx.actions.declare_directory(ctx.label.name)
    sources = _sources(ctx)
    arguments = ctx.actions.args()
    arguments.set_param_file_format("multiline")
    arguments.use_param_file("@%s", use_always = True)
    arguments.add("--title=slime-%s" % ctx.label.name)
    arguments.add("--requirements", ctx.file.requirements)
    arguments.add_all("--wheels", ctx.files.wheels)
    arguments.add_all(ctx.attr.packages, format_each = "--package=%s")
    if ctx.file.deb_lock:
        arguments.add("--deb-lock", ctx.file.deb_lock)
        arguments.add_all("--debs", ctx.files.debs)
    arguments.add("--source=.")
    arguments.add_all(sources, format_each = "--source-file=%s")
    arguments.add("--out=%s" % out.path)
    ctx.actions.run(
        executable = ctx.executable._writer,
        arguments = [arguments],
        inputs = sources + ctx.files.wheels + ctx.files.debs + ctx.files.deb_lock + [ctx.file.requirements],
        outputs = [out],
        env = {"PYTHONDONTWRITEBYTECODE": "1"},
        mnemonic = "Image",
        progress_message = "Writing image %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles(files = [out]))]

image = rule(
    implementation = _image_impl,
    doc = "A folder with an OCI layout, `image/`, and `sbom.spdx.json`.",
    attrs = dict(
        _SOURCES,
        deb_lock = attr.label(allow_single_file = True),
        debs = attr.label_list(allow_files = True),
        packages = attr.string_list(doc = "only these of the lock; all if empty"),
        requirements = attr.label(allow_single_file = True, mandatory = True),
        wheels = attr.label_list(allow_files = True),
        _writer = attr.label(default = "//ci/image:build", executable = True, cfg = "exec"),
    ),
)
