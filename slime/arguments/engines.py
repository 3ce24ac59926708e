"""slime's own options about the engines and the router; every other `--sglang-*` and `--router-*`
flag passes through.
"""

from slime.arguments.flag import Flag, FlagGroup

GROUP = FlagGroup(
    "engines",
    "engines: SGLang and its router (any other --sglang-X goes to the engines, --router-X to "
    "the router)",
    (
        Flag("--sglang-router-ip", str, None, "Use the router that runs at this address."),
        Flag("--sglang-router-port", int, None, "Port of that router."),
        Flag("--sglang-server-concurrency", int, 512, "Requests in flight per engine."),
        Flag("--sglang-config", str, None, "YAML with models and server groups.", path=True),
        Flag(
            "--prefill-num-servers",
            int,
            None,
            "Engines that only prefill (prefill/decode disaggregation).",
        ),
        Flag(
            "--rollout-external-engine-addrs",
            str,
            None,
            "Use engines that run at these host:port addresses.",
            nargs="+",
        ),
    ),
)
