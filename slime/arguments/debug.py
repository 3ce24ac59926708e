"""Options for debugging, profiling and the project's own checks."""

from slime.arguments.flag import Flag, FlagGroup, switch

GROUP = FlagGroup(
    "debug",
    "debug: replay, dumps, profiles, checks",
    (
        switch("--debug-rollout-only", "Generate and do not train."),
        switch("--debug-train-only", "Train on saved rollouts and start no engines."),
        Flag(
            "--save-debug-rollout-data",
            str,
            None,
            "Save every rollout here: a folder, or a path with {rollout_id}.",
            path=True,
        ),
        Flag(
            "--load-debug-rollout-data",
            str,
            None,
            "Take rollouts from here instead of generating, as saved.",
            path=True,
        ),
        Flag(
            "--load-debug-rollout-data-subsample",
            float,
            None,
            "Share of a loaded rollout that is used.",
        ),
        Flag(
            "--load-forge-rollout-data",
            str,
            None,
            "What slime.rollout.forged_rollout makes up: a JSON file of lengths and rewards.",
            path=True,
        ),
        Flag(
            "--save-debug-train-data",
            str,
            None,
            "Save the train data of every rank here; contains {rollout_id}.",
            path=True,
        ),
        Flag(
            "--dump-details",
            str,
            None,
            "Directory for rollout and train data of every step.",
            path=True,
        ),
        Flag("--memory-snapshot-dir", str, ".", "Directory of memory snapshots.", path=True),
        Flag("--memory-snapshot-num-steps", int, None, "Rollouts over which memory is recorded."),
        Flag("--memory-recorder", str, "torch", "Who records memory.", choices=("torch", "memray")),
        Flag(
            "--profile-target",
            str,
            ["train_overall"],
            "What is profiled.",
            choices=("train_overall", "train_actor", "train_log_probs"),
            nargs="+",
        ),
        switch("--ci-test", "Check numbers that must hold (used by the project's tests)."),
        switch("--ci-disable-kl-checker", "Leave out the check that the first KL is zero."),
        Flag(
            "--ci-train-rollout-logprob-abs-diff-threshold",
            float,
            0.1,
            "Largest allowed difference of log-probabilities.",
        ),
        Flag("--ci-save-grad-norm", str, None, "Save gradient norms here.", path=True),
        Flag("--ci-load-grad-norm", str, None, "Compare gradient norms with these.", path=True),
    ),
)
