"""Each check on made-up machines: what is well, what is not, and what it says then."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from slime.doctor.devices import check_devices
from slime.doctor.expected import Expected
from slime.doctor.finding import Finding
from slime.doctor.machine import PORTS, UNLIMITED, Disk, Gpu, Machine, parse_gpus
from slime.doctor.network import check_network
from slime.doctor.packages import check_packages
from slime.doctor.resources import check_resources

GIB = 1024**3
LOCKED = {
    "torch": "2.13.0",
    "megatron-core": "0.16.1",
    "sglang": "0.5.23",
    "sglang-router": "0.3.2",
    "ray": "2.60.0",
    "transformers": "5.19.0",
    "numpy": "2.4.6",
    "rich": "15.0.0",
}
CPU = Expected("requirements.lock.txt", LOCKED | {"absent": "1.0"}, (3, 11), {}, "13.0")
CUDA = Expected(
    *("requirements.cuda.lock.txt", LOCKED | {"torch": "2.14.1"}, (3, 12)),
    {"deep-ep": "1.2.1", "sglang": "0.5.23", "transformer-engine": "2.18"},
    "13.0",
)
GOOD = Machine(
    packages=LOCKED | {"torch": "2.13.0+cpu"},
    gpus=None,
    shm=Disk("/dev/shm", 16 * GIB, 16 * GIB),
    disks=(Disk("/data", 500 * GIB, 300 * GIB),),
    nofile=65536,
    memlock=8 << 20,
    cpus=8,
    memory=64 * GIB,
    interfaces={"lo": ("127.0.0.1", "::1"), "eth0": ("192.0.2.2",)},
    host_address="192.0.2.2",
    free_ports=PORTS,
)
H200 = Gpu("NVIDIA H200", 143771, 4, "580.95.5")
CLUSTER = replace(
    GOOD,
    device="cuda",
    python=(3, 12),
    packages=GOOD.packages | {"torch": "2.14.1", "deep-ep": "1.2.1", "transformer-engine": "2.18"},
    gpu_nodes=2,
    gpus=(H200, H200),
    infiniband=("mlx5_0",),
    memlock=UNLIMITED,
)


def on_cpu(**changes: object) -> list[Finding]:
    machine = replace(GOOD, **changes)
    return [
        *check_packages(machine, CPU),
        *check_devices(machine, "cpu", CPU),
        *check_resources(machine, "cpu"),
        *check_network(machine),
    ]


def on_cluster(**changes: object) -> list[Finding]:
    machine = replace(CLUSTER, **changes)
    return [
        *check_packages(machine, CUDA),
        *check_devices(machine, "cuda", CUDA),
        *check_resources(machine, "cuda"),
        *check_network(machine),
    ]


def wrong(findings: Sequence[Finding]) -> list[Finding]:
    return [one for one in findings if one.status != "ok"]


@pytest.mark.parametrize("examine", [on_cpu, on_cluster])
def test_a_good_machine(examine: Callable[[], list[Finding]]):
    findings = examine()
    assert wrong(findings) == []
    assert not [one for one in findings if one.remedy]
    assert len({one.check for one in findings}) == len(findings)


PACKAGES = dict(GOOD.packages)


@pytest.mark.parametrize(
    ("examine", "changes", "check", "status", "found", "remedy"),
    [
        # packages
        (
            *(on_cpu, {"packages": PACKAGES | {"sglang": "0.5.22"}}, "sglang", "problem"),
            *("0.5.22; requirements.lock.txt has 0.5.23", "--require-hashes"),
        ),
        (
            *(on_cpu, {"packages": {k: v for k, v in PACKAGES.items() if k != "ray"}}, "ray"),
            *("problem", "missing; requirements.lock.txt has 2.60.0", "install it: pip install"),
        ),
        (
            *(on_cpu, {"packages": PACKAGES | {"rich": "14.0"}}, "other packages", "note"),
            *("1 of 1 differ from requirements.lock.txt: rich 14.0 (locked: 15.0.0)", "pip"),
        ),
        (on_cpu, {"python": (3, 10)}, "Python", "problem", "3.10", "install Python 3.11"),
        (on_cpu, {"python": (3, 13)}, "Python", "note", "are for 3.11", "use Python 3.11"),
        (on_cluster, {"python": (3, 11)}, "Python", "note", "are for 3.12", "use Python 3.12"),
        (
            *(on_cluster, {"packages": CLUSTER.packages | {"deep-ep": "1.1"}}, "deep-ep"),
            *("problem", "1.1; the pin is 1.2.1", "install deep-ep 1.2.1"),
        ),
        (
            *(on_cluster, {"packages": GOOD.packages | {"torch": "2.14.1", "deep-ep": "1.2.1"}}),
            *("transformer-engine", "note", "missing; the pin is 2.18", "nix develop .#cuda"),
        ),
        # devices
        (on_cpu, {"gpu_nodes": 8}, "GPUs", "note", "8 NVIDIA devices", "install torch for CUDA"),
        (on_cluster, {"gpu_nodes": 0}, "GPUs", "problem", "no NVIDIA device", "--gpus all"),
        (on_cluster, {"gpus": None}, "GPUs", "problem", "nvidia-smi is missing", "repair"),
        (
            *(on_cluster, {"gpus": (H200, replace(H200, used=9000))}, "GPUs in use", "note"),
            *("by others: 1", "CUDA_VISIBLE_DEVICES"),
        ),
        (
            *(on_cluster, {"gpus": (replace(H200, driver="570.172.08"),)}, "NVIDIA driver"),
            *("problem", "570.172.08; CUDA 13.0 needs 580.65.6", "install driver 580.65.6"),
        ),
        # resources
        (on_cpu, {"shm": None}, "/dev/shm", "problem", "there is none", "--shm-size"),
        (
            *(on_cpu, {"shm": Disk("/dev/shm", 64 << 20, 64 << 20)}, "/dev/shm", "problem"),
            *("0.1 GiB free", "1.0 GiB or more"),
        ),
        (
            *(on_cluster, {"shm": Disk("/dev/shm", 4 * GIB, 4 * GIB)}, "/dev/shm", "problem"),
            *("4.0 GiB free", "8.0 GiB or more"),
        ),
        (on_cpu, {"nofile": 256}, "open files", "problem", "at most 256", "ulimit -n 1024"),
        (on_cluster, {"nofile": 1024}, "open files", "problem", "1024", "ulimit -n 65536"),
        (
            *(on_cluster, {"memlock": 65536}, "locked memory", "problem"),
            *("at most 65536; InfiniBand (mlx5_0)", "ulimit -l unlimited"),
        ),
        (
            *(on_cpu, {"disks": (Disk("/data", 100 * GIB, GIB),)}, "disk", "problem"),
            *("Ray stops spilling to a disk that is 95% full", "free some"),
        ),
        (
            *(on_cluster, {"disks": (Disk("/data", 100 * GIB, 20 * GIB),)}, "disk"),
            *("problem", "20 GiB free of 100 GiB", "run where there are 50 GiB"),
        ),
        (on_cpu, {"memory": GIB}, "memory", "problem", "1.0 GiB available", "4.0 GiB"),
        (
            *(on_cpu, {"environment": {"OMP_NUM_THREADS": "64"}}, "CPUs", "note"),
            *("8; OMP_NUM_THREADS=64", "export OMP_NUM_THREADS=8"),
        ),
        (
            *(on_cpu, {"environment": {"OMP_NUM_THREADS": "all"}}, "CPUs", "problem"),
            *("8; OMP_NUM_THREADS=all", "set it to a number"),
        ),
        (on_cpu, {"cpu_quota": 2.0}, "CPUs", "note", "2 of 8", "export OMP_NUM_THREADS=2"),
        # network
        (on_cpu, {"interfaces": {}}, "loopback", "problem", "127.0.0.1", "ip link set lo up"),
        (on_cpu, {"free_ports": 3}, "free ports", "problem", "3 of 64", "ss -tan"),
        (on_cpu, {"host_address": None}, "host name", "note", "does not resolve", "/etc/hosts"),
        (on_cpu, {"host_address": "198.51.100.7"}, "host name", "note", "198.51.100.7", "correct"),
        (
            *(on_cluster, {"interfaces": GOOD.interfaces | {"ib0": ("198.51.100.1",)}}),
            *("NCCL interface", "note", "any of eth0, ib0", "export NCCL_SOCKET_IFNAME"),
        ),
        (
            *(on_cluster, {"environment": {"NCCL_SOCKET_IFNAME": "ib"}}, "NCCL interface"),
            *("problem", "NCCL_SOCKET_IFNAME=ib: no interface that is up", "eth0, lo"),
        ),
        (
            *(on_cluster, {"environment": {"NCCL_SOCKET_IFNAME": "^eth"}}, "NCCL interface"),
            *("problem", "no interface that is up", "unset NCCL_SOCKET_IFNAME"),
        ),
        (
            *(on_cpu, {"environment": {"GLOO_SOCKET_IFNAME": "lo,ib0"}}, "gloo interface"),
            *("problem", "ib0 is not up", "unset GLOO_SOCKET_IFNAME"),
        ),
    ],
)
def test_one_thing_is_wrong(examine, changes, check, status, found, remedy):
    found_wrong = wrong(examine(**changes))
    (finding,) = (one for one in found_wrong if one.check == check)
    assert finding.status == status
    assert not [one for one in found_wrong if one.status == "problem" and one.check != check]
    assert found in finding.found
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        ("eth", "eth0, eth1"),
        ("=eth1", "eth1"),
        ("eth1,ib", "eth1, ib0"),
        ("^docker,eth0", "eth1, ib0"),
        ("^=eth", "eth0, eth1, ib0"),
    ],
)
def test_nccl_reads_its_variable_this_way(value: str, chosen: str):
    """NCCL's own rules: prefixes, `=` for exact names, `^` for all but these."""
    names = dict.fromkeys(("eth0", "eth1", "ib0", "docker0"), ("192.0.2.9",))
    machine = replace(
        CLUSTER,
        interfaces={"lo": ("127.0.0.1",)} | names,
        environment={"NCCL_SOCKET_IFNAME": value},
    )
    (finding,) = (one for one in check_network(machine) if one.check == "NCCL interface")
    assert (finding.status, finding.found) == ("ok", f"NCCL_SOCKET_IFNAME={value}: {chosen}")


@pytest.mark.parametrize(("version", "status"), [("0.1.2", "ok"), ("0.1.1", "problem")])
def test_the_wheel_that_brings_deep_ep(version: str, status: str):
    """SGLang's own build has another name and is locked; without both, the pin is told."""
    locked = CUDA.locked | {"sgl-deep-ep": "0.1.2"}
    packages = {name: v for name, v in CLUSTER.packages.items() if name != "deep-ep"}
    machine = replace(CLUSTER, packages=packages | {"sgl-deep-ep": version})
    findings = check_packages(machine, replace(CUDA, locked=locked))
    (finding,) = (one for one in findings if "deep-ep" in one.check)
    assert (finding.check, finding.status) == ("sgl-deep-ep", status)


def test_without_a_lock_nothing_is_compared():
    (finding,) = check_packages(GOOD, None)
    assert (finding.status, finding.check) == ("note", "packages")


def test_two_folders_of_one_disk_are_one_line():
    one = Disk("/a", 10 * GIB, 5 * GIB)
    machine = replace(GOOD, disks=(one, replace(one, path="/b"), Disk("/c", 9 * GIB, 5 * GIB)))
    shown = [f.found for f in check_resources(machine, "cpu") if f.check == "disk"]
    assert shown == ["/a: 5.0 GiB free of 10 GiB", "/c: 5.0 GiB free of 9.0 GiB"]


def test_reads_nvidia_smi():
    text = "NVIDIA H200, 143771, 4, 580.95.05\nNVIDIA GB10, [N/A], [N/A], 580.95.05\n"
    assert parse_gpus(text) == (
        Gpu("NVIDIA H200", 143771, 4, "580.95.05"),
        Gpu("NVIDIA GB10", 0, 0, "580.95.05"),
    )
