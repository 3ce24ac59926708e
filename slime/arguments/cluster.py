"""Options of the cluster: how many ranks and engines, where they lie, how long they live."""

from slime.arguments.flag import Flag, FlagGroup, json_value, switch, toggle

GROUP = FlagGroup(
    "cluster",
    'cluster: ranks and engines (on a CPU machine a "gpu" is a rank)',
    (
        Flag("--actor-num-nodes", int, 1, "Nodes that train the actor."),
        Flag(
            "--actor-num-gpus-per-node",
            int,
            8,
            "Train ranks per node (1 when the device is the CPU).",
        ),
        Flag("--critic-num-nodes", int, None, "Nodes that train the critic (default: as actor)."),
        Flag(
            "--critic-num-gpus-per-node",
            int,
            None,
            "Train ranks of the critic per node, on GPUs of its own (default: it shares those of "
            "the actor).",
        ),
        Flag(
            "--rollout-num-gpus",
            int,
            None,
            "GPUs of all engines together; with --colocate those of the actor (one engine on a "
            "CPU).",
        ),
        Flag(
            "--rollout-num-gpus-per-engine",
            int,
            1,
            "GPUs of one engine: its tensor-parallel size; whole nodes if it lies on several.",
        ),
        Flag("--num-gpus-per-node", int, 8, "GPUs of a machine that holds engines."),
        switch("--colocate", "Train and generate on the same GPUs, in turns."),
        switch("--offload", "Both --offload-train and --offload-rollout."),
        toggle(
            "--offload-train",
            "Move the trainer out of GPU memory while generating (default: with --colocate).",
        ),
        toggle(
            "--offload-rollout",
            "Move the engines out of GPU memory while training (default: with --colocate).",
        ),
        switch(
            "--release-train",
            "End the train processes while generating and start them anew afterwards.",
        ),
        Flag(
            "--train-env-vars",
            json_value,
            {},
            "Environment variables of the train processes, as JSON.",
        ),
        switch("--use-fault-tolerance", "Restart engines that fail their health check."),
        Flag(
            "--rollout-health-check-interval",
            float,
            30.0,
            "Seconds between two health checks of an engine.",
        ),
        Flag(
            "--rollout-health-check-timeout",
            float,
            30.0,
            "Seconds an engine has to answer a health check.",
        ),
        Flag(
            "--rollout-health-check-first-wait",
            float,
            0.0,
            "Seconds before the first health check.",
        ),
        Flag("--http-proxy", str, None, "Proxy for requests that leave the cluster."),
        switch(
            "--use-distributed-post",
            "Send requests from one Ray actor per node instead of from the rollout manager.",
        ),
    ),
)
