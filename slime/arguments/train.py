"""Options of the trainer beside Megatron's own: model, batches, loss memory, critic, hooks."""

from slime.arguments.flag import Flag, FlagGroup, switch

GROUP = FlagGroup(
    "train",
    "train: model, batches, memory, hooks of the trainer",
    (
        Flag(
            "--hf-checkpoint",
            str,
            None,
            "The model as a Hugging Face directory: shape, tokenizer and first weights.",
            path=True,
        ),
        Flag(
            "--model-name",
            str,
            None,
            "Name of the converter between Hugging Face and Megatron (default: from the "
            "model's config).",
        ),
        Flag(
            "--ref-load",
            str,
            None,
            "Weights of the reference model (Megatron checkpoint or Hugging Face directory).",
            path=True,
        ),
        Flag("--ref-ckpt-step", int, None, "Iteration of --ref-load (default: its latest)."),
        Flag(
            "--save-hf",
            str,
            None,
            "Also export the model in Hugging Face format to this path; may contain {rollout_id}.",
            path=True,
        ),
        Flag(
            "--num-critic-only-steps", int, 0, "Rollouts at the start that train the critic only."
        ),
        Flag(
            "--megatron-config-path",
            str,
            None,
            "YAML with settings per role (actor, critic, ref).",
            path=True,
        ),
        Flag("--custom-model-provider-path", str, None, "Hook that builds the Megatron model."),
        switch(
            "--recompute-loss-function",
            "Recompute the loss in the backward pass instead of keeping its activations.",
        ),
        Flag(
            "--log-probs-chunk-size",
            int,
            -1,
            "Tokens per piece of the log-probability computation; -1: of 32 MB of logits.",
        ),
        Flag(
            "--only-train-params-name-list",
            str,
            None,
            "Regular expressions of the only parameters that train.",
            nargs="*",
        ),
        Flag(
            "--freeze-params-name-list",
            str,
            None,
            "Regular expressions of parameters that do not train.",
            nargs="*",
        ),
        switch(
            "--allgather-cp",
            "Gather keys and values over context-parallel ranks instead of passing them round.",
        ),
        Flag(
            "--qwen-gdn-backend",
            str,
            "fla",
            "Kernels of Qwen's gated delta net.",
            choices=("fla", "flashqla"),
        ),
        switch("--balance-data", "Give every data-parallel rank about the same number of tokens."),
        switch("--balance-by-flops", "Balance by estimated FLOPs instead of tokens."),
        switch("--use-dynamic-batch-size", "Pack micro-batches up to --max-tokens-per-gpu."),
        Flag(
            "--max-tokens-per-gpu",
            int,
            None,
            "Most tokens of a micro-batch on one rank (for dynamic batches).",
        ),
        Flag(
            "--log-probs-max-tokens-per-gpu",
            int,
            None,
            "The same for log-probabilities (default: --max-tokens-per-gpu).",
        ),
        Flag(
            "--data-pad-size-multiplier",
            int,
            128,
            "Packed micro-batches are padded to a multiple of this many tokens.",
        ),
        Flag(
            "--train-stall-timeout",
            float,
            3600.0,
            "The run ends when the train ranks need more seconds than this for one call.",
        ),
        switch(
            "--keep-old-actor", "Keep the weights that generated, to compute old log-probabilities."
        ),
        switch("--enable-mtp-training", "Train the multi-token-prediction layers too."),
        switch("--reset-optimizer-states", "Start every rollout with fresh optimizer moments."),
        switch("--use-stateless-adam", "Adam without moments kept between steps."),
        Flag(
            "--custom-megatron-init-path", str, None, "Hook called after Megatron is initialised."
        ),
        Flag(
            "--custom-megatron-before-log-prob-hook-path",
            str,
            None,
            "Hook called before log-probabilities are computed.",
        ),
        Flag(
            "--custom-megatron-before-train-step-hook-path",
            str,
            None,
            "Hook called before every train step.",
        ),
        Flag(
            "--megatron-deepgemm-forward-layers",
            int,
            None,
            "Layers whose forward pass uses DeepGEMM.",
            nargs="+",
        ),
        Flag(
            "--megatron-deepgemm-forward-modules",
            str,
            None,
            "Modules whose forward pass uses DeepGEMM.",
            nargs="+",
        ),
        Flag(
            "--megatron-deepgemm-moe-forward-layers",
            int,
            None,
            "Layers whose experts use DeepGEMM.",
            nargs="+",
        ),
        Flag(
            "--megatron-deepgemm-moe-forward-modules",
            str,
            None,
            "Expert modules that use DeepGEMM.",
            nargs="+",
        ),
    ),
)
