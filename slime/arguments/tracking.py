"""Options of logging and tracking."""

from slime.arguments.flag import Flag, FlagGroup, negative, switch

GROUP = FlagGroup(
    "tracking",
    "tracking: wandb, tensorboard, what is logged",
    (
        switch("--use-wandb", "Log to Weights & Biases."),
        Flag(
            "--wandb-mode", str, None, "How wandb runs.", choices=("online", "offline", "disabled")
        ),
        Flag("--wandb-dir", str, None, "Directory of wandb's files.", path=True),
        Flag("--wandb-key", str, None, "API key (better: the environment variable WANDB_API_KEY)."),
        Flag("--wandb-host", str, None, "Address of the wandb server."),
        Flag("--wandb-team", str, None, "wandb entity."),
        Flag("--wandb-project", str, None, "wandb project."),
        Flag("--wandb-group", str, None, "wandb group."),
        Flag("--wandb-run-id", str, None, "Continue this wandb run."),
        negative(
            "--disable-wandb-random-suffix",
            "wandb_random_suffix",
            "Do not add a random suffix to the group's name.",
        ),
        switch("--wandb-always-use-train-step", "Use the train step as wandb's step everywhere."),
        switch("--use-tensorboard", "Log to TensorBoard."),
        Flag("--tb-project-name", str, None, "TensorBoard project."),
        Flag("--tb-experiment-name", str, None, "TensorBoard experiment."),
        switch("--log-multi-turn", "Log turns and tool calls."),
        switch("--log-passrate", "Log pass@k."),
        Flag(
            "--log-reward-category", str, None, "Key of the reward's category, counted per rollout."
        ),
        switch("--log-correct-samples", "Log correct samples apart."),
    ),
)
