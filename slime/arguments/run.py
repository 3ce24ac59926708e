"""Options of the run as a whole: configuration files, where it writes, on what it runs."""

from slime.arguments.flag import Flag, FlagGroup, switch

GROUP = FlagGroup(
    "run",
    "run: configuration, where it writes, what it runs on",
    (
        Flag(
            "--config",
            str,
            [],
            "A YAML file of options; may be given several times, later files and flags win.",
            nargs="append",
        ),
        Flag(
            "--run-dir",
            str,
            None,
            "Directory of everything the run writes (default: runs/<run name>).",
            path=True,
        ),
        Flag(
            "--run-name",
            str,
            None,
            "Name of the run (default: the last config's name and the time).",
        ),
        switch("--dry-run", "Print the plan of the run (processes, numbers) and stop."),
        switch("--print-config", "Print a YAML file that reproduces this run and stop."),
        Flag(
            "--device",
            str,
            "auto",
            "What to run on; auto takes CUDA where the machine has it.",
            choices=("auto", "cpu", "cuda"),
        ),
        Flag(
            "--ray-address", str, None, "Join this Ray cluster instead of starting one for the run."
        ),
        Flag("--engine-threads", int, 1, "CPU threads of one engine process."),
        Flag("--train-threads", int, 1, "CPU threads of one train rank."),
        switch("--no-progress", "Do not draw the live progress line."),
        Flag("--train-backend", str, "megatron", "The trainer.", choices=("megatron",)),
    ),
)
