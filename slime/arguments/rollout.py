"""Options of generation: sampling, lengths, filters and hooks of a rollout."""

from slime.arguments.flag import Flag, FlagGroup, switch

DEFAULT_ROLLOUT = "slime.rollout.sglang_rollout.generate_rollout"

GROUP = FlagGroup(
    "rollout",
    "rollout: sampling, lengths, filters, hooks",
    (
        Flag(
            "--rollout-function-path",
            str,
            DEFAULT_ROLLOUT,
            "The function that generates a rollout.",
        ),
        Flag("--rollout-temperature", float, 1.0, "Sampling temperature."),
        Flag("--rollout-top-p", float, 1.0, "Nucleus sampling: probability mass kept."),
        Flag("--rollout-top-k", int, -1, "Most likely tokens kept; -1 keeps all."),
        Flag(
            "--rollout-max-context-len",
            int,
            None,
            "Most tokens of prompt and response together (default: the model's limit).",
        ),
        Flag("--rollout-max-prompt-len", int, None, "Longer prompts are left out of the data."),
        Flag("--rollout-max-response-len", int, None, "Most new tokens of a response."),
        switch("--rollout-skip-special-tokens", "Leave special tokens out of the response's text."),
        Flag("--rollout-stop", str, None, "Texts that end a response.", nargs="+"),
        Flag("--rollout-stop-token-ids", int, None, "Token ids that end a response.", nargs="+"),
        switch("--rollout-shuffle", "Shuffle the prompts of every epoch."),
        Flag("--rollout-seed", int, 42, "Seed of shuffling and sampling."),
        Flag("--num-rollout", int, None, "Rollouts of the whole run."),
        Flag("--num-epoch", int, None, "Epochs over the prompts, instead of --num-rollout."),
        Flag(
            "--start-rollout-id", int, None, "First rollout (default: after the loaded checkpoint)."
        ),
        Flag("--rollout-batch-size", int, None, "Prompts per rollout."),
        Flag("--n-samples-per-prompt", int, 1, "Responses per prompt."),
        Flag(
            "--num-steps-per-rollout",
            int,
            None,
            "Optimizer steps per rollout (default: from --global-batch-size, else 1).",
        ),
        Flag(
            "--over-sampling-batch-size",
            int,
            None,
            "Prompts requested at once when filters drop groups (default: --rollout-batch-size).",
        ),
        Flag(
            "--dynamic-sampling-filter-path",
            str,
            None,
            "Hook that keeps or drops a group while sampling.",
        ),
        switch(
            "--partial-rollout",
            "Put unfinished responses back and continue them in the next rollout.",
        ),
        switch(
            "--mask-offpolicy-in-partial-rollout",
            "Do not train on tokens of earlier rollouts in continued responses.",
        ),
        Flag(
            "--rollout-abort-grace",
            float,
            10.0,
            "Seconds that groups still being graded get when a rollout has all it needs.",
        ),
        Flag(
            "--rollout-stall-timeout",
            float,
            3600.0,
            "The run ends when no response and no reward was finished for so many seconds.",
        ),
        Flag(
            "--max-weight-lag",
            int,
            2,
            "Fully async rollouts: most weight updates between a token and its training; "
            "what is older is generated anew.",
        ),
        Flag("--custom-generate-function-path", str, None, "Hook that generates one sample."),
        Flag(
            "--rollout-sample-hook-path",
            str,
            [],
            "Hook called on every finished sample; may be given several times.",
            nargs="append",
        ),
        Flag(
            "--rollout-sample-filter-path",
            str,
            None,
            "Hook that marks samples which shall not train.",
        ),
        Flag(
            "--rollout-all-samples-process-path",
            str,
            None,
            "Hook called with all samples, dropped ones included.",
        ),
        Flag("--buffer-filter-path", str, None, "Hook that takes groups out of the buffer."),
        Flag("--custom-rollout-log-function-path", str, None, "Hook that logs a rollout."),
        Flag(
            "--rollout-data-postprocess-path",
            str,
            None,
            "Hook called on the train data before training.",
        ),
        Flag(
            "--custom-convert-samples-to-train-data-path",
            str,
            None,
            "Hook that turns samples into train data.",
        ),
        Flag(
            "--rollout-data-transport",
            str,
            "object-store",
            "How train data reaches the train ranks.",
            choices=("object-store", "nixl"),
        ),
        Flag("--rollout-buffer-url", str, None, "Address of an external rollout buffer."),
        Flag(
            "--fetch-trajectory-retry-times",
            int,
            -1,
            "Attempts to fetch from the external buffer; -1 never gives up.",
        ),
        Flag(
            "--min-batch-collection-ratio",
            float,
            1.0,
            "Share of a batch that suffices to go on with the external buffer.",
        ),
        Flag("--rollout-task-type", str, "math", "Task name sent to the external buffer."),
    ),
)
