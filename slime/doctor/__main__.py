"""`./bazelw run //slime:doctor`: says whether this machine is fit for a run, and what to do if not.

Exit code: 0 if there is no problem, 1 if there is one.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from slime.doctor.devices import check_devices
from slime.doctor.expected import Expected, read_expected
from slime.doctor.finding import Finding
from slime.doctor.lock_file import LockError
from slime.doctor.machine import Machine, look
from slime.doctor.network import check_network
from slime.doctor.packages import check_packages
from slime.doctor.report import as_json, counted, show
from slime.doctor.resources import check_resources


def examine(machine: Machine, device: str) -> list[Finding]:
    """Every check of a machine that is to run on `device`."""
    expected: Expected | None = None
    unreadable: list[Finding] = []
    try:
        expected = read_expected(device)
    except FileNotFoundError:
        pass  # installed by pip: check_packages says that there is nothing to compare with
    except LockError as error:
        remedy = "take the file from version control again, or ./bazelw run //tools:lock"
        unreadable = [Finding("packages", "problem", str(error), remedy)]
    return [
        *(unreadable or check_packages(machine, expected)),
        *check_devices(machine, device, expected),
        *check_resources(machine, device),
        *check_network(machine),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Look, print, and say by the exit code whether all is well."""
    parser = argparse.ArgumentParser(prog="doctor", description=__doc__)
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="what runs shall use; auto finds out (default)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    options = parser.parse_args(argv)
    machine = look(os.environ)
    device = machine.device if options.device == "auto" else options.device
    findings = examine(machine, device)
    if options.json:
        print(as_json(device, findings))
    else:
        show(device, findings, Console())
    return 1 if counted(findings)["problem"] else 0


if __name__ == "__main__":
    sys.exit(main())
