"""Put one locked wheel, unpacked, at hand.

    store.py DEST "NAME==VERSION --hash=sha256:..." [the same for each wheel that it needs ...]

The store is shared by every clone and build of a user: `$SLIME_PYPI_STORE`, else
`$XDG_CACHE_HOME/slime-pypi`, else `~/.cache/slime-pypi`. In it, `wheels/<sha256>/` keeps what pip
brought and `unpacked/<name>-<version>-<digest>/site-packages` what Python imports, with byte code
that is never checked again, since nothing writes there later. File locks serialise processes; a
folder gets its final name only when complete. DEST gets a file `stamp` and links: `site-packages`
and the wheel.

Needs only the standard library and pip, whose own configuration decides where wheels come from.
"""

import compileall
import fcntl
import hashlib
import os
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LAYOUT = "1"  # part of every unpacked folder's name: raise it when unpacking changes
ATTEMPTS = 3
NETWORK = re.compile(
    r"Max retries|ConnectionError|NewConnection|Temporary failure|timed? ?out|IncompleteRead|"
    r"ProxyError|SSLError|Connection (broken|reset|aborted)|ProtocolError"
)


class StoreError(Exception):
    """A wheel cannot be had; the message names the package, the cause and the remedy."""


@dataclass(frozen=True)
class Requirement:
    """One line of requirements.lock.txt."""

    line: str

    @property
    def pin(self) -> str:
        """`name==version`."""
        return self.line.split()[0]

    @property
    def digests(self) -> list[str]:
        """The accepted sha256 digests."""
        return re.findall(r"--hash=sha256:(\w+)", self.line)


def say(message: str) -> None:
    """Print one progress line; Bazel passes standard error through."""
    print(f"slime: {message}", file=sys.stderr, flush=True)


def store_root() -> Path:
    """Find the user-level store."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SLIME_PYPI_STORE") or Path(cache, "slime-pypi")).absolute()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the system drops it if the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def wheel_of(store: Path, requirement: Requirement) -> Path | None:
    """Find the stored wheel of a requirement."""
    folders = (store / "wheels" / digest for digest in requirement.digests)
    return next((wheel for folder in folders for wheel in folder.glob("*.whl")), None)


def pip_download(store: Path, requirements: list[Requirement]) -> str:
    """Bring wheels into the store with one pip; return pip's output if it failed, else nothing."""
    with tempfile.TemporaryDirectory(dir=store) as folder:
        wanted = Path(folder, "wanted.txt")
        wanted.write_text("".join(requirement.line + "\n" for requirement in requirements))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
        command += ["--disable-pip-version-check", "--require-hashes", "--no-deps", "--retries=2"]
        command += ["--only-binary=:all:", "--dest", folder, "--requirement", str(wanted)]
        env = {**os.environ, "PYTHONSAFEPATH": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=env)
        for wheel in Path(folder).glob("*.whl"):
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
            final = store / "wheels" / digest / wheel.name
            final.parent.mkdir(parents=True, exist_ok=True)
            wheel.rename(final)
    return done.stdout + done.stderr if done.returncode else ""


def explain(requirement: Requirement, output: str) -> str:
    """Turn pip's failure into one message: which package, what is wrong, what to do."""
    if "No module named pip" in output:
        cause = f"{sys.executable} has no pip"
        remedy = "install it (Debian: apt-get install python3-pip)"
    elif "DO NOT MATCH THE HASHES" in output:
        got = re.search(r"Got\s+(\w{64})", output)
        accepted = " or ".join(requirement.digests)
        cause = f"wrong hash\n  locked:  {accepted}\n  offered: {got[1] if got else 'unknown'}"
        remedy = "do not trust that file; if the lock is to change, ./bazelw run //tools:lock"
        if requirement.pin.startswith("torch=="):
            remedy = "the lock holds PyTorch's CPU build; let pip find it (PIP_EXTRA_INDEX_URL)"
    elif NETWORK.search(output):
        cause = "the package index cannot be reached"
        remedy = "check the network and pip's settings (pip config list), then run this again"
    elif "No matching distribution" in output:
        cause = "the package index has no such wheel for this Python and platform"
        remedy = "check pip's settings (pip config list), or lock another version"
    else:
        cause = f"pip failed:\n{output.strip()}"
        remedy = "see pip's output"
    return f"cannot get {requirement.pin}: {cause}\n  what to do: {remedy}"


def fetch(store: Path, requirements: list[Requirement]) -> None:
    """Download what is missing: in one go, else one by one, to learn which wheel fails and why."""
    target = requirements[0].pin
    with locked(store / "locks" / "download"):
        missing = [requirement for requirement in requirements if not wheel_of(store, requirement)]
        if not missing:
            return
        began = time.monotonic()
        say(f"fetching {target} and {len(missing) - 1} more wheels that it needs")
        if pip_download(store, missing):
            for requirement in missing:
                fetch_one(store, requirement)
        wheels = (wheel_of(store, requirement) for requirement in missing)
        size = sum(wheel.stat().st_size for wheel in wheels if wheel) / 1e6
        say(f"fetched {target} etc., {size:.0f} MB in {time.monotonic() - began:.0f} s")


def fetch_one(store: Path, requirement: Requirement) -> None:
    """Download one wheel, again and again while it is the network that fails.

    Raises:
        StoreError: it cannot be had.
    """
    for attempt in range(1, ATTEMPTS + 1):
        output = pip_download(store, [requirement])
        if wheel_of(store, requirement):
            return
        if attempt == ATTEMPTS or not NETWORK.search(output):
            raise StoreError(explain(requirement, output))
        say(f"{requirement.pin}: the network failed, trying again")
        time.sleep(2.0**attempt)


def member_path(name: str) -> str:
    """Say where a wheel's member goes below site-packages.

    What a wheel holds in `<name>.data/<kind>/` is laid beside the packages, scripts in `bin`.
    """
    head, _, rest = name.partition("/")
    if not head.endswith(".data"):
        return name
    kind, _, rest = rest.partition("/")
    return f"bin/{rest}" if kind == "scripts" else rest


def unpack(wheel: Path, site: Path) -> None:
    """Lay a wheel's files out below `site`, keeping executable bits.

    Raises:
        StoreError: a member would land outside `site`.
    """
    site = site.resolve()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            target = (site / member_path(member.filename)).resolve()
            if not target.is_relative_to(site):
                raise StoreError(f"{wheel.name} holds a path outside itself: {member.filename}")
            if member.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            executable = member.external_attr >> 16 & 0o111 or target.parent == site / "bin"
            target.chmod(0o755 if executable else 0o644)


def compile_all(site: Path, final: Path) -> None:
    """Write byte code that names the files by where they will lie and is never checked again."""
    large = sum(1 for _ in site.rglob("*.py")) > 500
    compileall.compile_dir(
        site,
        maxlevels=100,
        quiet=2,  # some wheels carry templates and Python 2 that do not compile
        workers=0 if large else 1,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        stripdir=str(site.parent),
        prependdir=str(final),
    )


def install(store: Path, requirement: Requirement) -> Path:
    """Return the unpacked folder of a stored wheel; unpack and compile it if it is new."""
    wheel = wheel_of(store, requirement)
    assert wheel is not None, requirement.pin
    digest = wheel.parent.name
    name = requirement.pin.replace("==", "-")
    key = f"{name}-{sys.implementation.cache_tag}-{LAYOUT}-{digest[:16]}"
    final = store / "unpacked" / key
    with locked(store / "locks" / key):
        if final.is_dir():
            return final
        began = time.monotonic()
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=store) as folder:
            ready = Path(folder, "ready")
            (ready / "site-packages").mkdir(parents=True)
            unpack(wheel, ready / "site-packages")
            compile_all(ready / "site-packages", final)
            (ready / "stamp").write_text(f"{requirement.pin} sha256:{digest} layout:{LAYOUT}\n")
            ready.rename(final)
        if time.monotonic() - began > 2:
            say(f"unpacked {requirement.pin} in {time.monotonic() - began:.0f} s")
    return final


def main(argv: list[str]) -> int:
    """Make DEST/site-packages and DEST/stamp; a failure's message is the last of stderr."""
    dest, requirements = Path(argv[0]), [Requirement(line) for line in argv[1:]]
    store = store_root()
    try:
        store.mkdir(parents=True, exist_ok=True)
        if not wheel_of(store, requirements[0]):
            fetch(store, requirements)
        unpacked = install(store, requirements[0])
    except (StoreError, OSError, zipfile.BadZipFile) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    (dest / "site-packages").symlink_to(unpacked / "site-packages")
    wheel = wheel_of(store, requirements[0])
    assert wheel is not None, requirements[0].pin
    (dest / wheel.name).symlink_to(wheel)
    shutil.copyfile(unpacked / "stamp", dest / "stamp")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
