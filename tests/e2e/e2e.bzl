"""The macros of the end-to-end tests: one file, a target on GPUs and a twin of it on a CPU."""

load("//tools/bazel:slime.bzl", "slime_test")

_COMMON = {
    "deps": [
        "//examples/quickstart:task",
        "//slime:train_lib",
        "//slime/launch",
        "@pypi//psutil",
    ],
    "size": "large",
}
_SHARED = [
    "checkpoints.py",
    "engine_fault.py",
    "fan_out.py",
    "launch.py",
    "outside_engine.py",
    "ray_node.py",
    "recipes.py",
    "reward.py",
    "twin.py",
    "twin_commands.py",
]
_DATA = "//examples/quickstart:data"

def _sizes(ranks, engines):
    return {
        "SLIME_TWIN_ENGINES": str(engines),
        "SLIME_TWIN_RANKS": str(ranks),
    }

def gpu_test(name, srcs, gpus, suites, model, ranks = 1, engines = 1):
    """A test on `gpus` GPUs, in CI's jobs of `suites`; --config=cpu-twin runs its twin with the tiny `model`."""
    slime_test(
        name = name,
        srcs = srcs + _SHARED,
        args = ["--twin", "-s"],
        data = [model, _DATA],
        env = _sizes(ranks, engines),
        tags = ["gpu:%d" % gpus] + suites,
        **_COMMON
    )

def twin_test(name, srcs, model, ranks = 1, engines = 1, shared = False):
    """The twins of some files, which CI runs on its CPUs; if `shared`, on one Ray and engine where they can."""
    slime_test(
        name = name,
        srcs = srcs + _SHARED,
        args = ["-s"],
        data = [model, _DATA],
        env = dict(_sizes(ranks, engines), SLIME_CPU_TWIN = "1", SLIME_TWIN_SHARED = str(int(shared))),
        tags = ["cpu", "slow"],
        **_COMMON
    )

def e2e_test(name, srcs, gpus, suites, **sizes):
    """Both."""
    gpu_test(name, srcs, gpus, suites, **sizes)
    twin_test(name + "_twin", srcs, **sizes)
