"""What a lock holds, how it is written, and what differs between two of them."""

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """One locked wheel: public version, its digest, and the locked packages that it needs."""

    name: str
    version: str
    sha256: str
    deps: tuple[str, ...] = ()


def public(version: str) -> str:
    """Drop the local part (`+cpu`): the pin then accepts any build whose hash fits."""
    return version.partition("+")[0]


def render_lock(header: str, packages: list[Package]) -> str:
    """A lock in pip's syntax: one version and one hash per package, and no address."""
    lines = [f"{one.name}=={one.version} \\\n    --hash=sha256:{one.sha256}\n" for one in packages]
    return "".join([header, *lines])


def read_lock(path: Path) -> dict[str, Package]:
    """What an earlier lock holds, by name. A line that cannot be read is left out: re-locking is
    how such a lock is mended.
    """
    pattern = r"^([a-z0-9-]+)==(\S+)(?:\s+\\\s+--hash=sha256:(\w+))?"
    text = path.read_text() if path.exists() else ""
    found = (Package(*match.groups(default="")) for match in re.finditer(pattern, text, re.M))
    return {package.name: package for package in found}


def explain(before: dict[str, Package], after: dict[str, Package]) -> str:
    """Say in a few lines what the new lock changes."""
    added, removed = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    lines = [f"  added    {name} {after[name].version}" for name in added]
    lines += [f"  removed  {name} {before[name].version}" for name in removed]
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        if old.version != new.version:
            lines.append(f"  changed  {name} {old.version} -> {new.version}")
        elif old.sha256 != new.sha256:
            lines.append(f"  rehashed {name} {old.version}: {old.sha256} -> {new.sha256}")
    return "\n".join([f"lock: {len(after)} packages, {len(lines)} changed", *lines])
