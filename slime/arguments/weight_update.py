"""Options of the way from the trainer's weights to the engines."""

from slime.arguments.flag import Flag, FlagGroup, switch

GROUP = FlagGroup(
    "weights",
    "weights: how new weights reach the engines",
    (
        Flag(
            "--update-weight-mode",
            str,
            "full",
            "Send all weights or only what changed (by files).",
            choices=("full", "delta"),
        ),
        Flag(
            "--update-weight-transport",
            str,
            "nccl",
            "Between processes (in memory if they share a machine's, else by NCCL or gloo), or "
            "as files.",
            choices=("nccl", "disk"),
        ),
        Flag("--update-weight-buffer-size", int, 512 * 1024**2, "Bytes of weights sent at once."),
        Flag("--update-weights-interval", int, 1, "Rollouts between two updates of the engines."),
        Flag(
            "--update-weight-disk-dir",
            str,
            None,
            "Folder of the disk transport, readable by the engines (default: in the run's).",
            path=True,
        ),
        switch("--update-weight-disk-keep-files", "Keep the files of the disk transport."),
        Flag(
            "--update-weight-delta-encoding",
            str,
            "xor",
            "How a delta is stored: bits that differ, or numbers that do.",
            choices=("xor", "overwrite"),
        ),
        Flag(
            "--update-weight-delta-checksum",
            str,
            "xxh3-128",
            "Checksum of every tensor after a delta.",
            choices=("xxh3-128", "blake3", "adler32"),
        ),
        Flag(
            "--custom-update-weight-post-write-path",
            str,
            None,
            "Hook (args, path) called when weights were written, before engines load them.",
        ),
        Flag(
            "--update-weight-local-checkpoint-dir",
            str,
            None,
            "Copy of the weights that deltas are applied to, beside the engines (default: in the "
            "run's folder).",
            path=True,
        ),
        switch(
            "--check-weight-update-equal",
            "Compare the engines' weights with the trainer's after an update.",
        ),
    ),
)
