"""Megatron's optimizer, learning-rate schedule, batch sizes and precision."""

from slime.arguments.flag import Flag, FlagGroup, negative, switch

_MOMENT_DTYPES = ("fp32", "bf16", "fp16", "fp8")

OPTIMIZER = FlagGroup(
    "optimizer",
    "optimizer (Megatron): optimizer, schedule, batch sizes, seed",
    (
        Flag("--optimizer", str, "adam", "The optimizer.", choices=("adam", "sgd", "muon")),
        Flag("--lr", float, None, "Learning rate."),
        Flag("--min-lr", float, 0.0, "Learning rate at the end of the decay."),
        Flag(
            "--lr-decay-style",
            str,
            "constant",
            "Shape of the decay (Megatron's own default is linear).",
            choices=("constant", "linear", "cosine", "inverse-square-root", "WSD"),
        ),
        Flag("--lr-decay-iters", int, None, "Steps of the decay (default: all of the run)."),
        Flag("--lr-warmup-iters", int, 0, "Steps of the warm-up."),
        Flag("--lr-warmup-fraction", float, None, "Warm-up as a share of the decay steps."),
        Flag("--lr-warmup-init", float, 0.0, "Learning rate at the start of the warm-up."),
        Flag("--lr-wsd-decay-iters", int, None, "Last steps of a WSD schedule."),
        Flag(
            "--lr-wsd-decay-style",
            str,
            "exponential",
            "Shape of those steps.",
            choices=("exponential", "linear", "cosine", "minus_sqrt"),
        ),
        switch(
            "--override-opt-param-scheduler", "Take the schedule from here, not the checkpoint."
        ),
        switch("--use-checkpoint-opt-param-scheduler", "Take the schedule from the checkpoint."),
        Flag("--weight-decay", float, 0.01, "Weight decay."),
        Flag("--start-weight-decay", float, None, "Weight decay at the start."),
        Flag("--end-weight-decay", float, None, "Weight decay at the end."),
        Flag(
            "--weight-decay-incr-style",
            str,
            "constant",
            "Change of the weight decay.",
            choices=("constant", "linear", "cosine"),
        ),
        Flag("--adam-beta1", float, 0.9, "Adam's first beta."),
        Flag("--adam-beta2", float, 0.999, "Adam's second beta."),
        Flag("--adam-eps", float, 1e-8, "Adam's epsilon."),
        Flag("--sgd-momentum", float, 0.9, "Momentum of SGD."),
        Flag("--clip-grad", float, 1.0, "Largest gradient norm; 0 does not clip."),
        switch("--optimizer-cpu-offload", "Keep optimizer state in host memory."),
        Flag("--optimizer-offload-fraction", float, 1.0, "Share that is kept there."),
        switch("--use-precision-aware-optimizer", "Optimizer state in lower precision."),
        Flag("--main-grads-dtype", str, "fp32", "Of gradients.", choices=("fp32", "bf16")),
        Flag("--main-params-dtype", str, "fp32", "Of main weights.", choices=("fp32", "fp16")),
        Flag("--exp-avg-dtype", str, "fp32", "Of Adam's mean.", choices=_MOMENT_DTYPES),
        Flag("--exp-avg-sq-dtype", str, "fp32", "Of Adam's variance.", choices=_MOMENT_DTYPES),
        switch("--overlap-cpu-optimizer-d2h-h2d", "Overlap its transfers."),
        Flag("--micro-batch-size", int, 1, "Samples of a micro-batch (without dynamic batches)."),
        Flag("--global-batch-size", int, None, "Samples of an optimizer step."),
        Flag("--seed", int, 1234, "Seed of the trainer."),
        switch("--deterministic-mode", "Train with deterministic kernels only."),
        switch("--calculate-per-token-loss", "Average the loss over tokens, not over samples."),
    ),
)

PRECISION = FlagGroup(
    "precision",
    "precision (Megatron)",
    (
        switch("--bf16", "Train in bf16 (default where the device is CUDA)."),
        switch("--fp16", "Train in fp16."),
        switch("--fp32", "Train in fp32 (default where the device is a CPU)."),
        Flag("--loss-scale", float, None, "Fixed loss scale of fp16."),
        Flag("--initial-loss-scale", float, 2.0**32, "First loss scale of fp16."),
        Flag("--min-loss-scale", float, 1.0, "Smallest loss scale."),
        Flag("--loss-scale-window", float, 1000.0, "Steps until the scale grows."),
        Flag("--hysteresis", int, 2, "Overflows until the scale falls."),
        switch("--accumulate-allreduce-grads-in-fp32", "Sum gradients in fp32 with bf16 weights."),
        switch("--grad-reduce-in-bf16", "Reduce gradients in bf16."),
        Flag("--fp8-format", str, None, "FP8 training.", choices=("e4m3", "hybrid")),
        Flag(
            "--fp8-recipe",
            str,
            "delayed",
            "Scaling of FP8.",
            choices=("delayed", "tensorwise", "mxfp8", "blockwise"),
        ),
        switch("--fp8-param-gather", "Keep parameters in FP8."),
        negative(
            "--no-check-for-nan-in-loss-and-grad",
            "check_for_nan_in_loss_and_grad",
            "Skip a step whose loss or gradient is not finite, instead of stopping the run.",
        ),
    ),
)
