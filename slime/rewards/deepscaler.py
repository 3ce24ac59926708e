"""The rule of DeepScaleR: a finished thought, then a boxed answer."""

from slime.rewards.math_answers import grade_answer_verl

_ENDS_OF_THOUGHT = ("</think>", "###Response")


def get_deepscaler_rule_based_reward(response: str, label: str | int | float | list[str]) -> int:
    """1 for a right boxed answer after the end of the thought, else 0.

    Args:
        response: The whole response; without `</think>` (or `###Response`) it is 0.
        label: The answer, or several of which one is enough.
    """
    for end in _ENDS_OF_THOUGHT:
        if end in response:
            solution = response.rsplit(end, 1)[1]
            break
    else:
        return 0
    truths = label if isinstance(label, list) else [label]
    return int(any(grade_answer_verl(solution, truth) for truth in truths))
