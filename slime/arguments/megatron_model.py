"""Megatron's model shape. What is not given is read from the config of --hf-checkpoint.

Where Megatron's own default would be wrong for every model that slime trains (learned positions,
LayerNorm, dropout 0.1), the default here is None (taken from the checkpoint) or 0.
"""

from slime.arguments.flag import Flag, FlagGroup, negative, switch, toggle

GROUP = FlagGroup(
    "model",
    "model (Megatron): shape (default: from --hf-checkpoint)",
    (
        Flag("--num-layers", int, None, "Transformer layers."),
        Flag("--hidden-size", int, None, "Width of the model."),
        Flag("--ffn-hidden-size", int, None, "Width of the feed-forward layer."),
        Flag("--num-attention-heads", int, None, "Attention heads."),
        toggle("--group-query-attention", "Keys and values are shared by groups of heads."),
        Flag("--num-query-groups", int, None, "Key/value heads."),
        Flag("--kv-channels", int, None, "Width of a head."),
        Flag("--vocab-size", int, None, "Tokens of the vocabulary, before padding."),
        Flag(
            "--make-vocab-size-divisible-by", int, 128, "Pad the vocabulary to a multiple (CPU: 1)."
        ),
        Flag("--max-position-embeddings", int, None, "Longest sequence of the model."),
        Flag("--seq-length", int, None, "Sequence length Megatron plans for."),
        Flag(
            "--position-embedding-type",
            str,
            None,
            "Position embedding.",
            choices=("learned_absolute", "rope", "mrope", "none"),
        ),
        Flag("--rotary-base", float, None, "Base of the rotary embedding."),
        Flag("--rotary-percent", float, 1.0, "Share of a head that is rotated."),
        Flag("--rotary-seq-len-interpolation-factor", int, None, "Interpolation of positions."),
        switch("--use-rope-scaling", "Scale the rotary embedding as Llama 3 does."),
        Flag("--rope-scaling-factor", float, 8.0, "Factor of that scaling."),
        switch("--rotary-interleaved", "Rotate neighbouring channels."),
        Flag(
            "--normalization", str, None, "Kind of normalisation.", choices=("LayerNorm", "RMSNorm")
        ),
        Flag("--norm-epsilon", float, None, "Epsilon of the normalisation."),
        toggle("--qk-layernorm", "Normalise queries and keys."),
        toggle("--add-qkv-bias", "Bias of the query, key and value projection."),
        negative("--disable-bias-linear", "add_bias_linear", "No bias in linear layers."),
        toggle("--swiglu", "Gated SiLU feed-forward."),
        toggle("--untie-embeddings-and-output-weights", "Input and output embeddings differ."),
        Flag("--attention-dropout", float, 0.0, "Dropout of attention weights."),
        Flag("--hidden-dropout", float, 0.0, "Dropout of hidden states."),
        Flag("--init-method-std", float, 0.02, "Deviation of fresh weights."),
        Flag("--window-size", int, None, "Sliding attention window: left and right.", nargs="+"),
        Flag(
            "--attention-backend",
            str,
            None,
            "Attention kernels (default: what Megatron picks).",
            choices=("auto", "flash", "fused", "unfused", "local"),
        ),
        Flag(
            "--transformer-impl",
            str,
            None,
            "Layer implementation (default: local on a CPU, else transformer_engine).",
            choices=("local", "transformer_engine"),
        ),
        switch("--attention-softmax-in-fp32", "Softmax of attention in fp32."),
        switch("--no-masked-softmax-fusion", "Do not fuse the masked softmax."),
        switch("--no-bias-gelu-fusion", "Do not fuse bias and GELU."),
        switch("--no-bias-swiglu-fusion", "Do not fuse bias and SwiGLU."),
        switch("--no-bias-dropout-fusion", "Do not fuse bias and dropout."),
        switch("--no-rope-fusion", "Do not fuse the rotary embedding."),
        switch("--no-gradient-accumulation-fusion", "Do not fuse gradient accumulation."),
        switch("--no-persist-layer-norm", "Do not use the persistent layer norm kernel."),
        switch("--cross-entropy-loss-fusion", "Fuse the cross entropy."),
        Flag("--mtp-num-layers", int, None, "Multi-token-prediction layers."),
        Flag("--mtp-loss-scaling-factor", float, 0.1, "Weight of their loss."),
        Flag("--spec", str, None, "Module and function of a layer specification.", nargs="*"),
        switch("--multi-latent-attention", "Multi-latent attention (DeepSeek)."),
        Flag("--q-lora-rank", int, None, "Rank of the query projection of that attention."),
        Flag("--kv-lora-rank", int, 32, "Rank of its key/value projection."),
        Flag("--qk-head-dim", int, 128, "Width of a query head without positions."),
        Flag("--qk-pos-emb-head-dim", int, 64, "Width of the rotated part of a head."),
        Flag("--v-head-dim", int, 128, "Width of a value head."),
        Flag("--rotary-scaling-factor", float, 1.0, "YaRN factor of that attention."),
        Flag("--mscale", float, 1.0, "YaRN attention scale."),
        Flag("--mscale-all-dim", float, 0.0, "YaRN attention scale of all channels."),
    ),
)
