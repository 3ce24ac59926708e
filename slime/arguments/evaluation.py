"""Options of evaluation; what is not given is taken from the rollout's options."""

from slime.arguments.flag import Flag, FlagGroup, switch

GROUP = FlagGroup(
    "eval",
    "eval: evaluation (defaults: the rollout's values)",
    (
        Flag("--eval-interval", int, None, "Rollouts between two evaluations."),
        Flag("--eval-prompt-data", str, None, "Pairs of name and path.", nargs="+", path=True),
        Flag(
            "--eval-config",
            str,
            None,
            "YAML with evaluation data sets and their settings.",
            path=True,
        ),
        Flag(
            "--eval-function-path",
            str,
            None,
            "The function that evaluates (default: the rollout function).",
        ),
        switch("--skip-eval-before-train", "Do not evaluate before the first rollout."),
        Flag("--eval-input-key", str, None, "Key of the prompt."),
        Flag("--eval-label-key", str, None, "Key of the label."),
        Flag("--eval-tool-key", str, None, "Key of the tools."),
        Flag("--n-samples-per-eval-prompt", int, 1, "Responses per evaluation prompt."),
        Flag("--eval-temperature", float, None, "Sampling temperature."),
        Flag("--eval-top-p", float, None, "Probability mass kept."),
        Flag("--eval-top-k", int, None, "Most likely tokens kept."),
        Flag("--eval-max-response-len", int, None, "Most new tokens."),
        Flag("--eval-max-prompt-len", int, None, "Longer prompts are left out."),
        Flag("--eval-min-new-tokens", int, None, "Fewest new tokens."),
        Flag("--eval-max-context-len", int, None, "Most tokens of prompt and response together."),
        Flag("--eval-reward-key", str, None, "Key of the reward where it is a mapping."),
        Flag("--custom-eval-rollout-log-function-path", str, None, "Hook that logs an evaluation."),
    ),
)
