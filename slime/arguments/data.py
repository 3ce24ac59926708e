"""Options of the prompt data."""

from slime.arguments.flag import Flag, FlagGroup, json_value, negative, switch

MEDIA = ("image", "video", "audio")

GROUP = FlagGroup(
    "data",
    "data: prompts",
    (
        Flag(
            "--prompt-data",
            str,
            None,
            "Prompts, jsonl or parquet; path@[0:100] takes a slice. Several sources: "
            "NAME=PATH,NAME=PATH (every prompt once per epoch), or by share of the prompts served "
            "NAME:WEIGHT=PATH,...; NAME becomes the samples' metadata source_name.",
            path=True,
        ),
        negative(
            "--disable-rollout-global-dataset",
            "rollout_global_dataset",
            "The rollout function brings its own data.",
        ),
        Flag(
            "--data-source-path",
            str,
            "slime.rollout.data_source.RolloutDataSourceWithBuffer",
            "The class of the data source.",
        ),
        Flag("--input-key", str, "input", "Key of the prompt in a data line."),
        Flag("--label-key", str, None, "Key of the label."),
        Flag("--metadata-key", str, "metadata", "Key of the metadata."),
        Flag("--tool-key", str, "tools", "Key of the tools."),
        Flag(
            "--multimodal-keys",
            json_value,
            None,
            'Keys of images, videos, audio, as JSON: {"image": "images"}.',
        ),
        switch(
            "--apply-chat-template",
            "The prompt is a list of messages: apply the tokenizer's chat template.",
        ),
        Flag(
            "--apply-chat-template-kwargs",
            json_value,
            {},
            "Arguments of the chat template, as JSON.",
        ),
        Flag(
            "--loss-mask-type",
            str,
            "qwen",
            "How the loss mask of a multi-turn chat is made.",
            choices=("qwen", "qwen3", "qwen3_5", "distill_qwen"),
        ),
    ),
)
