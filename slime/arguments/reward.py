"""Options of the reward."""

from slime.arguments.flag import Flag, FlagGroup, switch

GROUP = FlagGroup(
    "reward",
    "reward: who grades, and how",
    (
        Flag(
            "--rm-type",
            str,
            None,
            "Built-in grader: exact, math, deepscaler, dapo, f1, gpqa, ifbench, remote_rm.",
        ),
        Flag("--reward-key", str, None, "Key of the reward where the grader returns a mapping."),
        switch("--group-rm", "Grade a whole group at once."),
        Flag("--rm-url", str, None, "Address of the remote grader."),
        Flag("--custom-rm-path", str, None, "Hook that grades."),
        Flag("--custom-reward-post-process-path", str, None, "Hook that normalises rewards."),
    ),
)

# What the room of rewards grades; any other name is refused at start-up.
GRADERS = ("exact", "math", "deepscaler", "dapo", "f1", "gpqa", "ifbench", "remote_rm")
BOXED_PREFIX = "boxed_"  # grade what is inside the last \boxed{...}
DICT_REWARD_KEYS = {"dapo": ("score", "acc", "pred")}  # graders that return a mapping, and its keys


def grades_by_label(rm_type: str | None) -> bool:
    """Whether a `--rm-type` compares with the label: a line without one cannot be graded."""
    plain = (rm_type or "").removeprefix(BOXED_PREFIX)
    return plain in GRADERS and plain not in ("ifbench", "remote_rm")
