"""Options of the algorithm: advantages, losses, corrections for off-policy data, distillation."""

from slime.arguments.flag import Flag, FlagGroup, negative, switch

ESTIMATORS = (
    "grpo",
    "gspo",
    "cispo",
    "rloo",
    "reinforce_plus_plus",
    "reinforce_plus_plus_baseline",
    "ppo",
)

GROUP = FlagGroup(
    "algorithm",
    "algorithm: advantages, loss, off-policy correction",
    (
        Flag(
            "--advantage-estimator", str, "grpo", "How advantages are computed.", choices=ESTIMATORS
        ),
        Flag(
            "--loss-type",
            str,
            "policy_loss",
            "The loss.",
            choices=("policy_loss", "sft_loss", "custom_loss"),
        ),
        Flag(
            "--custom-loss-function-path",
            str,
            None,
            "Hook that computes the loss (with --loss-type custom_loss).",
        ),
        Flag(
            "--custom-advantage-function-path",
            str,
            None,
            "Hook that computes advantages and returns.",
        ),
        Flag(
            "--custom-pg-loss-reducer-function-path",
            str,
            None,
            "Hook that reduces the policy loss over tokens.",
        ),
        negative(
            "--disable-compute-advantages-and-returns",
            "compute_advantages_and_returns",
            "Do not compute advantages (for losses that need none).",
        ),
        Flag("--eps-clip", float, 0.2, "Lower clip range of the policy ratio."),
        Flag("--eps-clip-high", float, None, "Upper clip range (default: --eps-clip)."),
        Flag("--eps-clip-c", float, None, "Bound of dual-clip PPO, above 1; off unless given."),
        Flag("--value-clip", float, 0.2, "Clip range of the value loss."),
        Flag("--kl-coef", float, 0.0, "Weight of the KL to the reference in the reward."),
        switch("--use-kl-loss", "Add the KL to the reference to the loss."),
        Flag("--kl-loss-coef", float, 0.0, "Weight of the KL in the loss."),
        Flag(
            "--kl-loss-type",
            str,
            "k1",
            "Estimator of the KL.",
            choices=("k1", "k2", "k3", "low_var_kl"),
        ),
        switch("--use-unbiased-kl", "Weight the KL with the importance ratio."),
        Flag(
            "--ref-update-interval",
            int,
            None,
            "Rollouts after which the reference becomes the actor.",
        ),
        Flag("--entropy-coef", float, 0.0, "Weight of the entropy bonus."),
        Flag("--gamma", float, 1.0, "Discount."),
        Flag("--lambd", float, 1.0, "Lambda of GAE."),
        switch("--normalize-advantages", "Whiten the advantages of a batch."),
        negative(
            "--disable-grpo-std-normalization",
            "grpo_std_normalization",
            "Do not divide by the group's deviation (Dr. GRPO).",
        ),
        negative(
            "--disable-rewards-normalization",
            "rewards_normalization",
            "Use rewards as they are, without a group baseline.",
        ),
        switch("--use-rollout-entropy", "Compute the entropy of the rollout's tokens."),
        switch("--get-mismatch-metrics", "Log how far train and rollout log-probabilities differ."),
        switch("--use-rollout-logprobs", "Take the engines' log-probabilities as the old ones."),
        switch(
            "--use-tis",
            "Truncated importance sampling between rollout and train log-probabilities.",
        ),
        Flag("--tis-clip", float, 2.0, "Upper bound of the importance weight."),
        Flag("--tis-clip-low", float, 0.0, "Lower bound of the importance weight."),
        Flag("--custom-tis-function-path", str, None, "Hook that computes the importance weights."),
        switch(
            "--use-routing-replay",
            "Replay expert routing of the log-probability pass while training.",
        ),
        switch(
            "--use-rollout-routing-replay", "Replay the engines' expert routing while training."
        ),
        switch("--use-opsm", "Mask off-policy sequences."),
        Flag("--opsm-delta", float, 1e-4, "KL above which a sequence counts as off-policy."),
        switch("--use-opd", "On-policy distillation from a teacher."),
        Flag("--opd-type", str, None, "Where the teacher runs.", choices=("sglang", "megatron")),
        Flag("--opd-kl-coef", float, 1.0, "Weight of the KL to the teacher."),
        Flag("--opd-teacher-load", str, None, "Weights of the Megatron teacher.", path=True),
        Flag("--opd-teacher-ckpt-step", int, None, "Iteration of the teacher's checkpoint."),
    ),
)
