"""Shared memory, limits, disks, memory and CPUs."""

from slime.doctor.finding import Finding, judge
from slime.doctor.machine import UNLIMITED, Disk, Machine

GIB = 1024**3
# Ray's object store and the tensors that processes pass each other lie in shared memory.
SHM = {"cpu": 1 * GIB, "cuda": 8 * GIB}
# Ray opens a connection for each pair of processes; its own advice for clusters is 65536.
NOFILE = {"cpu": 1024, "cuda": 65536}
DISK = {"cpu": 2 * GIB, "cuda": 50 * GIB}  # logs and checkpoints; a small model's, a large one's
MEMORY = {"cpu": 4 * GIB, "cuda": 32 * GIB}
RAY_FULL = 0.95  # above this share of a disk Ray refuses to spill


def check_resources(machine: Machine, device: str) -> list[Finding]:
    """What there is against what a run on `device` takes."""
    return [
        _shm(machine, device),
        _nofile(machine, device),
        _memlock(machine),
        *(_disk(disk, device) for disk in _distinct(machine.disks)),
        _memory(machine, device),
        _cpus(machine),
    ]


def _shm(machine: Machine, device: str) -> Finding:
    wanted = SHM[device]
    size = machine.shm.free if machine.shm else 0
    found = f"{_gib(size)} free" if machine.shm else "there is none"
    remedy = f"mount a tmpfs of {_gib(wanted)} or more there (docker run --shm-size=...)"
    return judge("/dev/shm", size >= wanted, found, remedy)


def _nofile(machine: Machine, device: str) -> Finding:
    wanted, limit = NOFILE[device], machine.nofile
    good = limit == UNLIMITED or limit >= wanted
    return judge("open files", good, _limit(limit), f"ulimit -n {wanted}")


def _memlock(machine: Machine) -> Finding:
    if not machine.infiniband:
        return Finding("locked memory", "ok", f"{_limit(machine.memlock)}; no InfiniBand needs it")
    found = f"{_limit(machine.memlock)}; InfiniBand ({', '.join(machine.infiniband)}) pins memory"
    good = machine.memlock == UNLIMITED
    return judge("locked memory", good, found, "ulimit -l unlimited (docker: --ulimit memlock=-1)")


def _disk(disk: Disk, device: str) -> Finding:
    found = f"{disk.path}: {_gib(disk.free)} free of {_gib(disk.total)}"
    if disk.free < (1 - RAY_FULL) * disk.total:
        found += f"; Ray stops spilling to a disk that is {RAY_FULL:.0%} full"
        return Finding("disk", "problem", found, "free some of it")
    remedy = f"free some, or run where there are {_gib(DISK[device])}"
    return judge("disk", disk.free >= DISK[device], found, remedy)


def _memory(machine: Machine, device: str) -> Finding:
    wanted = MEMORY[device]
    remedy = f"end other programs: a run takes {_gib(wanted)} or more"
    return judge("memory", machine.memory >= wanted, f"{_gib(machine.memory)} available", remedy)


def _cpus(machine: Machine) -> Finding:
    granted = min(float(machine.cpus), machine.cpu_quota or machine.cpus)
    found = f"{machine.cpus}" if granted == machine.cpus else f"{granted:g} of {machine.cpus}"
    threads = machine.environment.get("OMP_NUM_THREADS", "")
    if threads and not threads.isdecimal():
        remedy = "set it to a number, or unset it"
        return Finding("CPUs", "problem", f"{found}; OMP_NUM_THREADS={threads}", remedy)
    if threads and int(threads) > granted:
        remedy = f"export OMP_NUM_THREADS={max(int(granted), 1)}: more threads than CPUs are slower"
        return Finding("CPUs", "note", f"{found}; OMP_NUM_THREADS={threads}", remedy)
    if not threads and granted < machine.cpus:
        remedy = f"export OMP_NUM_THREADS={max(int(granted), 1)}: programs count all CPUs"
        return Finding("CPUs", "note", f"{found} (control group)", remedy)
    return Finding("CPUs", "ok", found)


def _distinct(disks: tuple[Disk, ...]) -> list[Disk]:
    """One of each size: two folders of one disk are one line."""
    return list({(disk.total, disk.free): disk for disk in reversed(disks)}.values())[::-1]


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size < 10 * GIB else f"{size / GIB:.0f} GiB"


def _limit(value: int) -> str:
    return "no limit" if value == UNLIMITED else f"at most {value}"
