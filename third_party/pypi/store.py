"""Put one locked wheel, unpacked, at hand: `store.py DEST "NAME==VERSION --hash=sha256:..." [what it needs ...]`.

The store is shared by every clone and build of a user: `$SLIME_PYPI_STORE`, else `$XDG_CACHE_HOME/slime-pypi`, else
`~/.cache/slime-pypi`. `wheels/<sha256>/` keeps what pip brought, `unpacked/<name>-<version>-<digest>/site-packages` what
Python imports, with byte code that is never checked again (nothing writes there later). File locks serialise processes;
a folder appears under its final name only when complete. DEST gets a link `site-packages` and a file `stamp`.

Only the standard library and the interpreter's own pip are used; pip's configuration decides where wheels come from.
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
NETWORK = re.compile(r"Max retries|ConnectionError|NewConnection|Temporary failure|timed? ?out|IncompleteRead|"
                     r"ProxyError|SSLError|Connection (broken|reset|aborted)|ProtocolError")  # fmt: skip


class StoreError(Exception):
    """A wheel cannot be had; the message names the package, the cause and the remedy."""


@dataclass(frozen=True)
class Requirement:
    """One line of requirements.lock.txt."""

    line: str

    @property
    def pin(self) -> str:
        return self.line.split()[0]

    @property
    def digests(self) -> list[str]:
        return re.findall(r"--hash=sha256:(\w+)", self.line)


def say(message: str) -> None:
    """One progress line; Bazel passes standard error through."""
    print(f"slime: {message}", file=sys.stderr, flush=True)


def store_root() -> Path:
    """The user-level store."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SLIME_PYPI_STORE") or Path(cache, "slime-pypi")).absolute()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock; the system drops it if the process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def wheel_of(store: Path, requirement: Requirement) -> Path | None:
    """The stored wheel of a requirement, if it is there."""
    found = (wheel for digest in requirement.digests for wheel in (store / "wheels" / digest).glob("*.whl"))
    return next(found, None)


def pip_download(store: Path, requirements: list[Requirement]) -> str:
    """Bring wheels into the store with one pip; return pip's output if it failed, else an empty string."""
    with tempfile.TemporaryDirectory(dir=store) as folder:
        wanted = Path(folder, "wanted.txt")
        wanted.write_text("".join(requirement.line + "\n" for requirement in requirements))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--require-hashes", "--no-deps", "--only-binary=:all:", "--dest", folder, "-r", str(wanted)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONSAFEPATH": "1"})
        for wheel in Path(folder).glob("*.whl"):
            final = store / "wheels" / hashlib.sha256(wheel.read_bytes()).hexdigest() / wheel.name
            final.parent.mkdir(parents=True, exist_ok=True)
            wheel.rename(final)
    return done.stdout + done.stderr if done.returncode else ""


def explain(requirement: Requirement, output: str) -> str:
    """Pip's failure as one message: which package, what is wrong, what to do."""
    got = re.search(r"Got\s+(\w{64})", output)
    if "No module named pip" in output:
        cause, remedy = f"{sys.executable} has no pip", "install it (Debian: apt-get install python3-pip)"
    elif "DO NOT MATCH THE HASHES" in output:
        cause = f"wrong hash: the lock accepts {' or '.join(requirement.digests)}, offered was {got[1] if got else '?'}"
        remedy = "do not trust that file; if the package was meant to change, run ./bazelw run //tools:lock"
        if requirement.pin.startswith("torch=="):
            remedy = "the lock holds PyTorch's CPU build: let pip find it (PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS)"
    elif NETWORK.search(output):
        cause, remedy = "the package index cannot be reached", "check the network and pip's settings (pip config list)"
    elif "No matching distribution" in output:
        cause = "the package index has no such wheel for this Python and platform"
        remedy = "check pip's settings (pip config list), or lock another version: ./bazelw run //tools:lock"
    else:
        cause, remedy = "pip failed", "see its output below"
        return f"cannot get {requirement.pin}: {cause}\n  what to do: {remedy}\n{output.strip()}"
    return f"cannot get {requirement.pin}: {cause}\n  what to do: {remedy}"


def fetch(store: Path, requirements: list[Requirement]) -> None:
    """Download what is missing: all in one go, then, if that fails, one by one to learn which package fails and why."""
    with locked(store / "download.lock"):
        missing = [requirement for requirement in requirements if not wheel_of(store, requirement)]
        if not missing:
            return
        began = time.monotonic()
        say(f"fetching {len(missing)} wheels for {requirements[0].pin}")
        if pip_download(store, missing):
            for requirement in missing:
                fetch_one(store, requirement)
        wheels = [wheel for wheel in (wheel_of(store, requirement) for requirement in missing) if wheel]
        size = sum(wheel.stat().st_size for wheel in wheels) / 1e6
        say(f"fetched {len(wheels)} wheels for {requirements[0].pin}, {size:.0f} MB in {time.monotonic() - began:.0f} s")


def fetch_one(store: Path, requirement: Requirement) -> None:
    """Download one wheel, trying again while the failure looks like the network's; raise StoreError otherwise."""
    for attempt in range(ATTEMPTS):
        output = pip_download(store, [requirement])
        if wheel_of(store, requirement):
            return
        if attempt + 1 == ATTEMPTS or not NETWORK.search(output):
            raise StoreError(explain(requirement, output))
        say(f"{requirement.pin}: the network failed, trying again")
        time.sleep(2 * 3**attempt)


def member_path(name: str) -> str:
    """Where a wheel's member goes below site-packages (`<name>.data/<kind>/...` is laid beside the packages)."""
    head, _, rest = name.partition("/")
    if not head.endswith(".data"):
        return name
    kind, _, rest = rest.partition("/")
    return f"bin/{rest}" if kind == "scripts" else rest


def unpack(wheel: Path, site: Path) -> None:
    """Lay a wheel's files out below `site`, keeping executable bits."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            target = (site / member_path(member.filename)).resolve()
            if not target.is_relative_to(site.resolve()):
                raise StoreError(f"{wheel.name} holds a path outside itself: {member.filename}")
            if member.is_dir():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            executable = (member.external_attr >> 16) & 0o111 or target.parent == site.resolve() / "bin"
            target.chmod(0o755 if executable else 0o644)


def install(store: Path, requirement: Requirement) -> Path:
    """Return the unpacked folder of a requirement whose wheel is in the store; unpack and compile it if it is new."""
    wheel = wheel_of(store, requirement)
    assert wheel is not None, requirement.pin
    digest = wheel.parent.name
    key = f"{requirement.pin.replace('==', '-')}-{sys.implementation.cache_tag}-{LAYOUT}-{digest[:16]}"
    final = store / "unpacked" / key
    with locked(store / "locks" / key):
        if final.is_dir():
            return final
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=store))
        try:
            began = time.monotonic()
            site = temporary / "site-packages"
            site.mkdir()
            unpack(wheel, site)
            workers = 0 if sum(1 for _ in site.rglob("*.py")) > 500 else 1
            mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(site, quiet=2, workers=workers, invalidation_mode=mode, maxlevels=100,
                                   stripdir=str(temporary), prependdir=str(final))  # fmt: skip
            (temporary / "stamp").write_text(f"{requirement.pin} sha256:{digest} layout:{LAYOUT}\n")
            temporary.chmod(0o755)
            temporary.rename(final)
            if time.monotonic() - began > 2:
                say(f"unpacked {requirement.pin} in {time.monotonic() - began:.0f} s")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return final


def main(argv: list[str]) -> int:
    """Make DEST/site-packages and DEST/stamp; on failure the last paragraph of standard error is the message."""
    dest, requirements = Path(argv[0]), [Requirement(line) for line in argv[1:]]
    store = store_root()
    try:
        store.mkdir(parents=True, exist_ok=True)
        if not wheel_of(store, requirements[0]):
            fetch(store, requirements)
        unpacked = install(store, requirements[0])
    except (StoreError, OSError, zipfile.BadZipFile) as error:
        print(f"\n\n{error}", file=sys.stderr)
        return 1
    (dest / "site-packages").symlink_to(unpacked / "site-packages")
    shutil.copyfile(unpacked / "stamp", dest / "stamp")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
