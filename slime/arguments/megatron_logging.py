"""Megatron's logging and profiling options."""

from slime.arguments.flag import Flag, FlagGroup, switch

GROUP = FlagGroup(
    "logging",
    "logging (Megatron): logs, profiles, memory history",
    (
        Flag("--log-interval", int, 1, "Steps between two log lines."),
        switch("--log-throughput", "Log the throughput of training."),
        switch("--log-params-norm", "Log the norm of the parameters."),
        switch("--log-num-zeros-in-grad", "Log how many gradients are zero."),
        Flag("--timing-log-level", int, 0, "Detail of the timers, 0 to 2."),
        Flag("--tensorboard-dir", str, None, "Directory of TensorBoard files.", path=True),
        switch("--profile", "Profile some steps."),
        switch("--use-pytorch-profiler", "Profile with PyTorch's profiler."),
        Flag("--profile-step-start", int, 10, "First step of the profile."),
        Flag("--profile-step-end", int, 12, "Step after the last of the profile."),
        Flag("--profile-ranks", int, [0], "Ranks that are profiled.", nargs="+"),
        switch("--record-memory-history", "Record allocations of memory."),
        Flag("--memory-snapshot-path", str, "snapshot.pickle", "File name of that record."),
    ),
)
