"""The program on this very machine, and the two ways it reports."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from slime.doctor import __main__ as doctor
from slime.doctor.finding import Finding
from slime.doctor.lock_file import LockError
from slime.doctor.machine import PORTS, Machine, look
from slime.doctor.report import as_json, show


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """The program as a user starts it."""
    command = [sys.executable, "-m", "slime.doctor", *options]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


def test_looks_at_this_machine(monkeypatch: pytest.MonkeyPatch):
    machine = look({"CUDA_VISIBLE_DEVICES": ""})
    assert machine.device == "cpu"
    assert machine.python == sys.version_info[:2]
    assert machine.packages["pytest"] == version("pytest")
    assert machine.cpus == len(psutil.Process().cpu_affinity())
    assert 0 < machine.memory <= psutil.virtual_memory().total
    assert machine.disks[0].path == str(Path.cwd())
    assert "127.0.0.1" in machine.interfaces["lo"]
    assert machine.free_ports == PORTS


def test_first_of_two_installations_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And one whose metadata are lost does not stop the doctor."""
    for folder, number in (("first", "9.1"), ("second", "9.2")):
        info = tmp_path / folder / f"Some.Thing-{number}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: Some.Thing\nVersion: {number}\n")
    (tmp_path / "first/lost-1.0.dist-info").mkdir()
    for folder in ("second", "first"):
        monkeypatch.syspath_prepend(tmp_path / folder)
    packages = look({}).packages
    assert packages["some-thing"] == "9.1" and "lost" not in packages


def test_json():
    done = run("--json", "--device=cpu")
    report = json.loads(done.stdout)
    problems = [one for one in report["findings"] if one["status"] == "problem"]
    assert report["device"] == "cpu"
    assert done.returncode == (1 if problems else 0)
    assert sum(report["counted"].values()) == len(report["findings"])
    assert all(one["remedy"] for one in problems)
    by_check = {one["check"]: one for one in report["findings"]}
    assert by_check["loopback"]["status"] == "ok"
    assert by_check["free ports"]["status"] == "ok"


def test_a_machine_without_gpus_is_not_fit_for_cuda():
    if any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has NVIDIA devices")
    done = run("--device=cuda", "--json")
    (gpus,) = (one for one in json.loads(done.stdout)["findings"] if one["check"] == "GPUs")
    assert (done.returncode, gpus["status"]) == (1, "problem")
    assert gpus["found"] == "there is no NVIDIA device in /dev"
    assert "--gpus all" in gpus["remedy"]


def test_table_of_this_machine():
    done = run("--device=cpu")
    assert done.stdout.startswith("slime doctor: runs on cpu")
    assert " problems, " in done.stdout.splitlines()[-1]


def test_unknown_option_is_refused():
    done = run("--device=tpu")
    assert done.returncode == 2 and "invalid choice: 'tpu'" in done.stderr


FINDINGS = [
    Finding("sglang", "problem", "0.5.22 [cpu] [/]", "install 0.5.23"),
    Finding("GPUs", "ok", "none"),
]


def test_table_shows_text_as_it_is():
    written = StringIO()
    show("cpu", FINDINGS, Console(file=written, width=120))
    text = written.getvalue()
    assert "0.5.22 [cpu] [/]" in text and "-> install 0.5.23" in text
    assert text.rstrip().endswith("1 problems, 0 notes, 1 ok")


def test_json_holds_all_fields():
    report = json.loads(as_json("cpu", FINDINGS))
    assert report["findings"][0] == {
        "check": "sglang",
        "status": "problem",
        "found": "0.5.22 [cpu] [/]",
        "remedy": "install 0.5.23",
    }
    assert report["counted"] == {"ok": 1, "note": 0, "problem": 1}


def test_damaged_lock_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    def damaged(device: str) -> None:
        raise LockError("requirements.lock.txt:7: expected `name==version`, found `x`")

    monkeypatch.setattr(doctor, "read_expected", damaged)
    finding = doctor.examine(Machine(), "cpu")[0]
    assert finding.status == "problem"
    assert "requirements.lock.txt:7" in finding.found and "//tools:lock" in finding.remedy
