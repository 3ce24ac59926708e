"""Megatron's parallel layout, communication overlap and recompute, under Megatron's own names and
defaults.
"""

from slime.arguments.flag import Flag, FlagGroup, switch

GROUP = FlagGroup(
    "parallel",
    "parallel (Megatron): layout, overlap, recompute",
    (
        Flag("--tensor-model-parallel-size", int, 1, "Tensor-parallel ranks."),
        Flag("--pipeline-model-parallel-size", int, 1, "Pipeline stages."),
        Flag("--context-parallel-size", int, 1, "Ranks that share a sequence."),
        Flag("--expert-model-parallel-size", int, 1, "Ranks that share the experts."),
        Flag("--expert-tensor-parallel-size", int, None, "Tensor-parallel ranks of an expert."),
        switch(
            "--sequence-parallel", "Split norms and dropout along the sequence over tensor ranks."
        ),
        Flag("--virtual-pipeline-model-parallel-size", int, None, "Model chunks per stage."),
        Flag("--num-layers-per-virtual-pipeline-stage", int, None, "Layers of such a chunk."),
        Flag("--num-virtual-stages-per-pipeline-rank", int, None, "The same, as a count."),
        Flag("--microbatch-group-size-per-virtual-pipeline-stage", int, None, "Micro-batch group."),
        Flag("--decoder-first-pipeline-num-layers", int, None, "Layers of the first stage."),
        Flag("--decoder-last-pipeline-num-layers", int, None, "Layers of the last stage."),
        Flag("--pipeline-model-parallel-layout", str, None, "Layers of every stage, spelled out."),
        switch("--account-for-embedding-in-pipeline-split", "Count the embedding as a layer."),
        switch("--account-for-loss-in-pipeline-split", "Count the loss as a layer."),
        Flag("--cp-comm-type", str, None, "How context-parallel ranks exchange.", nargs="+"),
        Flag(
            "--hierarchical-context-parallel-sizes",
            int,
            None,
            "Levels of that exchange.",
            nargs="+",
        ),
        switch("--use-distributed-optimizer", "Shard the optimizer over data-parallel ranks."),
        Flag("--num-distributed-optimizer-instances", int, 1, "Copies of the sharded optimizer."),
        switch("--overlap-grad-reduce", "Reduce gradients during the backward pass."),
        switch("--overlap-param-gather", "Gather parameters during the forward pass."),
        switch("--overlap-p2p-communication", "Overlap the pipeline's sends and receives."),
        switch("--overlap-moe-expert-parallel-comm", "Overlap the exchange between experts."),
        switch("--tp-comm-overlap", "Overlap tensor-parallel communication."),
        Flag("--ddp-bucket-size", int, None, "Parameters per gradient bucket."),
        switch("--ddp-average-in-collective", "Average gradients in the collective."),
        Flag("--distributed-timeout-minutes", int, 10, "Minutes until a collective fails."),
        Flag(
            "--distributed-backend",
            str,
            None,
            "Backend of torch.distributed (default: gloo on a CPU, else nccl).",
            choices=("nccl", "gloo"),
        ),
        Flag(
            "--recompute-granularity",
            str,
            None,
            "Which activations are recomputed.",
            choices=("full", "selective"),
        ),
        Flag(
            "--recompute-method",
            str,
            None,
            "How full recompute picks layers.",
            choices=("uniform", "block"),
        ),
        Flag("--recompute-num-layers", int, None, "Layers per recomputed piece."),
        Flag("--recompute-modules", str, None, "Modules of selective recompute.", nargs="*"),
        switch("--distribute-saved-activations", "Spread saved activations over tensor ranks."),
        switch("--cpu-offloading", "Offload activations to host memory."),
        Flag("--cpu-offloading-num-layers", int, 0, "Layers whose activations are offloaded."),
    ),
)
