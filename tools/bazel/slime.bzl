"""The macros that BUILD files use: slime_library, slime_test, slime_binary, python_artifact."""

load("@rules_python//python:defs.bzl", "py_binary", "py_library", "py_test")
load("//tools/bazel:purity.bzl", "purity_gate", "purity_tag")
load("//tools/bazel:tags.bzl", "gpus_of", "test_tags")

def slime_library(name, srcs, purity, deps = [], data = [], visibility = None, tags = []):
    """A room's code. `purity` is "pure", "torch" or "running" (see purity.bzl); to break it is a build error."""
    purity_gate(
        name = name + "_purity",
        deps = deps,
        purity = purity,
        room = "//%s:%s" % (native.package_name(), name),
        tags = tags,
    )
    py_library(
        name = name,
        srcs = srcs,
        data = data + [":%s_purity" % name],
        tags = tags + [purity_tag(purity)],
        visibility = visibility,
        deps = deps,
    )

def slime_test(name, srcs, deps = [], data = [], tags = ["cpu"], size = "small", args = [], **kwargs):
    """Test files (and conftest.py) under pytest.

    Tags (tags.bzl): "cpu" runs without an accelerator; "gpu:N" needs N, which it locks (gpu_main.py); suites; "slow" takes
    minutes. A test of size "large" or "enormous" starts several processes: it is scheduled as two cores, so on a small
    machine nothing runs beside it.
    """
    files = [source for source in srcs if source.rpartition("/")[2].startswith("test_")]
    cores = ["cpu:2"] if size in ["large", "enormous"] else []
    gpus = gpus_of(tags)
    runner = "//tools/bazel:gpu_main.py" if gpus else "//tools/bazel:pytest_main.py"
    py_test(
        name = name,
        size = size,
        srcs = srcs + [runner],
        args = (["--gpus=%d" % gpus] if gpus else []) +
               ["--file=%s/%s" % (native.package_name(), source) for source in files] + args,
        data = data,
        main = runner,
        tags = test_tags(name, tags) + cores,
        deps = deps + ["//tools/bazel:bootstrap", "@pypi//pytest"] + (["//tools/bazel:gpu_runner"] if gpus else []),
        **kwargs
    )

def _main_impl(ctx):
    ctx.actions.write(
        ctx.outputs.out,
        "\"\"\"Generated: starts {1}.\"\"\"\n\nfrom tools.bazel.bootstrap import run\n\nrun({0}, {2})\n".format(
            repr(ctx.workspace_name),
            ctx.attr.module,
            repr(ctx.attr.module),
        ),
    )

_main = rule(
    implementation = _main_impl,
    attrs = {
        "module": attr.string(mandatory = True),
        "out": attr.output(mandatory = True),
    },
)

def slime_binary(name, module, deps, data = [], visibility = None, **kwargs):
    """A program: runs `module` as `python -m` would, with its declared packages and those only, in the caller's folder.

    SLIME_RUNFILES names the folder of the workspace's built files: the artifact `//pkg:name` listed in `data` is
    `$SLIME_RUNFILES/pkg/name` there.
    """
    _main(
        name = name + "_main",
        module = module,
        out = name + "_main.py",
    )
    py_binary(
        name = name,
        srcs = [name + "_main.py"],
        main = name + "_main.py",
        data = data,
        visibility = visibility,
        deps = deps + ["//tools/bazel:bootstrap"],
        **kwargs
    )

def _artifact_impl(ctx):
    out = ctx.actions.declare_directory(ctx.attr.out_dir or ctx.label.name)
    arguments = [ctx.expand_location(argument, ctx.attr.srcs).replace("{out}", out.path) for argument in ctx.attr.args]
    ctx.actions.run(
        executable = ctx.executable.tool,
        arguments = arguments,
        inputs = ctx.files.srcs,
        outputs = [out],
        env = {
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONNOUSERSITE": "1",
        },
        mnemonic = "PythonArtifact",
        progress_message = "Making %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles(files = [out]))]

python_artifact = rule(
    implementation = _artifact_impl,
    doc = """A folder that a slime_binary makes, as a cached build action.

    In `args`, `{out}` is the folder to fill and `$(location LABEL)` a file of `srcs`.""",
    attrs = {
        "args": attr.string_list(),
        "out_dir": attr.string(doc = "the folder's name; the target's own if empty"),
        "srcs": attr.label_list(allow_files = True),
        "tool": attr.label(executable = True, cfg = "exec", mandatory = True),
    },
)
