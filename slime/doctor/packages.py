"""Installed packages against the lock and the pins."""

from slime.doctor.expected import Expected
from slime.doctor.finding import Finding, judge
from slime.doctor.machine import Machine

OLDEST_PYTHON = (3, 11)  # pyproject.toml's requires-python
# Wheels of another name that bring the same module: SGLang's build of DeepEP.
ALSO = {"deep-ep": "sgl-deep-ep"}
# What every run imports.
STACK = ("torch", "megatron-core", "sglang", "sglang-router", "ray", "transformers", "numpy")


def check_packages(machine: Machine, expected: Expected | None) -> list[Finding]:
    """Python, each part of the stack, and all else that is locked and installed."""
    if expected is None:
        found = "there is no lock beside this installation: versions are not compared"
        return [Finding("packages", "note", found, "run it from a checkout to compare them")]
    stack = [name for name in STACK if name in expected.locked]
    pinned = sorted(set(expected.pinned) - set(stack))
    return [
        _check_python(machine, expected),
        *(_check_package(machine, expected, name, expected.locked[name]) for name in stack),
        *(_check_pinned(machine, expected, name) for name in pinned),
        _check_rest(machine, expected),
    ]


def _check_python(machine: Machine, expected: Expected) -> Finding:
    version, wanted = (".".join(map(str, one)) for one in (machine.python, expected.python))
    if machine.python < OLDEST_PYTHON:
        return Finding("Python", "problem", version, f"install Python {wanted}")
    if machine.python[:2] != expected.python:
        found = f"{version}; the wheels of {expected.lock} are for {wanted}"
        return Finding("Python", "note", found, f"use Python {wanted} to install exactly the lock")
    return Finding("Python", "ok", version)


def _check_package(machine: Machine, expected: Expected, name: str, wanted: str) -> Finding:
    version = machine.packages.get(name)
    if version is None:
        found, remedy = f"missing; {expected.lock} has {wanted}", "install"
    else:
        found, remedy = f"{version}; {expected.lock} has {wanted}", "replace"
    good = version is not None and _public(version) == wanted
    command = f"pip install --require-hashes --no-deps -r {expected.lock}"
    return judge(name, good, f"{version}" if good else found, f"{remedy} it: {command}")


def _check_pinned(machine: Machine, expected: Expected, name: str) -> Finding:
    """A part that runs without: which of them a run needs depends on its options."""
    version, wanted = machine.packages.get(name), expected.pinned[name]
    if version is None and (other := ALSO.get(name, "")) in expected.locked:
        return _check_package(machine, expected, other, expected.locked[other])
    if version is None:
        return Finding(name, "note", f"missing; the pin is {wanted}", "nix develop .#cuda has it")
    remedy = f"install {name} {wanted}; nix develop .#cuda has it"
    good = _public(version) == wanted
    return judge(name, good, version if good else f"{version}; the pin is {wanted}", remedy)


def _check_rest(machine: Machine, expected: Expected) -> Finding:
    others = expected.locked.keys() - set(STACK) - set(expected.pinned)
    present = sorted(others & machine.packages.keys())
    differing = [
        f"{name} {machine.packages[name]} (locked: {expected.locked[name]})"
        for name in present
        if _public(machine.packages[name]) != expected.locked[name]
    ]
    if differing:
        found = f"{len(differing)} of {len(present)} differ from {expected.lock}: "
        remedy = f"pip install --require-hashes --no-deps -r {expected.lock}"
        return Finding("other packages", "note", found + ", ".join(differing), remedy)
    return Finding("other packages", "ok", f"{len(present)} as locked in {expected.lock}")


def _public(version: str) -> str:
    """Without the local part: `2.13.0+cpu` is a build of 2.13.0."""
    return version.partition("+")[0]
