"""GPUs and their driver."""

from slime.doctor.expected import Expected
from slime.doctor.finding import Finding, judge
from slime.doctor.machine import Machine

# The oldest Linux driver for each major CUDA version (NVIDIA's CUDA release notes, table 3).
OLDEST_DRIVER = {"12": (525, 60, 13), "13": (580, 65, 6)}
BUSY = 1024  # MiB in use by others


def check_devices(machine: Machine, device: str, expected: Expected | None) -> list[Finding]:
    """What a run on `device` finds."""
    if device == "cpu":
        return [_cpu(machine)]
    if not machine.gpu_nodes:
        remedy = "install the NVIDIA driver, or give the container its devices (--gpus all)"
        return [Finding("GPUs", "problem", "there is no NVIDIA device in /dev", remedy)]
    if not machine.gpus:
        found = f"{machine.gpu_nodes} in /dev, but nvidia-smi is missing or fails"
        return [Finding("GPUs", "problem", found, "repair the driver: nvidia-smi has to list them")]
    names = ", ".join(f"{gpu.name} ({gpu.memory / 1024:.0f} GiB)" for gpu in machine.gpus)
    findings = [Finding("GPUs", "ok", names)]
    busy = [str(index) for index, gpu in enumerate(machine.gpus) if gpu.used > BUSY]
    if busy:
        remedy = "see nvidia-smi for whose they are; CUDA_VISIBLE_DEVICES chooses others"
        findings.append(Finding("GPUs in use", "note", f"by others: {', '.join(busy)}", remedy))
    return findings + ([_driver(machine, expected)] if expected else [])


def _cpu(machine: Machine) -> Finding:
    if machine.gpu_nodes == 0:
        return Finding("GPUs", "ok", "none: runs use the CPU")
    found = f"{machine.gpu_nodes} NVIDIA devices that runs do not use"
    remedy = "install torch for CUDA and unset CUDA_VISIBLE_DEVICES to use them"
    return Finding("GPUs", "note", found, remedy)


def _driver(machine: Machine, expected: Expected) -> Finding:
    assert machine.gpus
    driver = machine.gpus[0].driver
    oldest = OLDEST_DRIVER[expected.cuda.partition(".")[0]]
    parts = tuple(int(part) for part in driver.split(".") if part.isdecimal())
    wanted = ".".join(map(str, oldest))
    found = f"{driver}; CUDA {expected.cuda} needs {wanted}"
    return judge("NVIDIA driver", parts >= oldest, found, f"install driver {wanted} or newer")
