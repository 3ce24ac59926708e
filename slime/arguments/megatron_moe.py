"""Megatron's mixture-of-experts options."""

from slime.arguments.flag import Flag, FlagGroup, layer_pattern, switch, toggle

GROUP = FlagGroup(
    "moe",
    "moe (Megatron): mixture of experts",
    (
        Flag("--num-experts", int, None, "Experts per layer (default: from --hf-checkpoint)."),
        Flag("--moe-router-topk", int, None, "Experts per token (default: from --hf-checkpoint)."),
        Flag("--moe-ffn-hidden-size", int, None, "Width of an expert."),
        Flag(
            "--moe-layer-freq",
            layer_pattern,
            None,
            "Which layers have experts: N or a list expression.",
        ),
        Flag("--moe-shared-expert-intermediate-size", int, None, "Width of the shared experts."),
        switch("--moe-shared-expert-gate", "Gate of the shared expert."),
        switch("--moe-shared-expert-overlap", "Overlap the shared expert with communication."),
        Flag(
            "--moe-router-load-balancing-type",
            str,
            "none",
            "Load balancing of the router (Megatron's default is aux_loss; RL trains without).",
            choices=("aux_loss", "seq_aux_loss", "global_aux_loss", "sinkhorn", "none"),
        ),
        Flag("--moe-aux-loss-coeff", float, 0.0, "Weight of the balancing loss."),
        Flag("--moe-z-loss-coeff", float, None, "Weight of the z-loss."),
        Flag(
            "--moe-router-score-function",
            str,
            None,
            "Scores of the router.",
            choices=("softmax", "sigmoid"),
        ),
        toggle("--moe-router-pre-softmax", "Softmax before the choice of experts."),
        Flag("--moe-router-topk-scaling-factor", float, None, "Factor of the routing weights."),
        Flag("--moe-router-num-groups", int, None, "Groups of experts."),
        Flag("--moe-router-group-topk", int, None, "Groups per token."),
        switch("--moe-router-enable-expert-bias", "Balance by a bias instead of a loss."),
        Flag(
            "--moe-router-bias-update-rate",
            float,
            0.0,
            "Step of that bias (Megatron's default is 1e-3; RL trains without).",
        ),
        Flag("--moe-router-dtype", str, None, "Precision of routing.", choices=("fp32", "fp64")),
        Flag(
            "--moe-token-dispatcher-type",
            str,
            "alltoall",
            "How tokens reach their experts.",
            choices=("allgather", "alltoall", "flex"),
        ),
        switch("--moe-enable-deepep", "Dispatch with DeepEP."),
        switch("--moe-grouped-gemm", "Compute all experts in one call."),
        switch("--moe-permute-fusion", "Fuse the permutation of tokens."),
        Flag("--moe-expert-capacity-factor", float, None, "Capacity of an expert."),
        switch("--moe-pad-expert-input-to-capacity", "Pad every expert to its capacity."),
    ),
)
