"""Megatron's checkpoint options."""

from slime.arguments.flag import Flag, FlagGroup, switch

GROUP = FlagGroup(
    "checkpoint",
    "checkpoint (Megatron): load and save",
    (
        Flag("--load", str, None, "Continue from this checkpoint directory.", path=True),
        Flag(
            "--save",
            str,
            None,
            "Checkpoints go here (default: checkpoints in --run-dir).",
            path=True,
        ),
        Flag(
            "--save-interval",
            int,
            None,
            "Rollouts between two checkpoints; the last is always saved.",
        ),
        Flag("--ckpt-step", int, None, "Iteration of --load (default: its latest)."),
        switch(
            "--use-previous-checkpoint",
            "Where the checkpoint to load is damaged, go on from the newest whole one before it.",
        ),
        switch("--no-save-optim", "Save no optimizer state."),
        switch("--no-save-rng", "Save no random state."),
        switch("--no-load-optim", "Load no optimizer state."),
        switch("--no-load-rng", "Load no random state."),
        switch("--finetune", "Load weights only and start at rollout 0."),
        switch("--async-save", "Write checkpoints in the background."),
        Flag(
            "--ckpt-format",
            str,
            "torch_dist",
            "Format of checkpoints.",
            choices=("torch_dist",),
        ),
        switch("--ckpt-fully-parallel-load", "Read checkpoints in parallel."),
        switch("--auto-detect-ckpt-format", "Detect the format of --load."),
        switch("--use-persistent-ckpt-worker", "One background process for all saves."),
        Flag("--dist-ckpt-strictness", str, "assume_ok_unexpected", "Handling of unexpected keys."),
    ),
)
