"""Instruction following (IFEval, arXiv:2311.07911; IFBench, arXiv:2507.02833), checked by rule.

Known are all 25 ids of IFEval and a part of those of IFBench; see the two tables of checks.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from slime.rewards.errors import UngradableError
from slime.rewards.instructions_ifbench import IFBENCH_CHECKS
from slime.rewards.instructions_ifeval import IFEVAL_CHECKS

CHECKS: dict[str, Callable[..., bool]] = IFEVAL_CHECKS | IFBENCH_CHECKS
"""Published id -> check(response, **arguments)."""


def compute_ifbench_reward(
    response: str, label: Any, metadata: Mapping[str, Any] | None = None
) -> float:
    """1.0 when the response follows every instruction, else 0.0.

    Args:
        response: The whole response; a thought up to `</think>` is no part of it.
        label: Not used where the metadata names the instructions; else a mapping like it, or its
            JSON.
        metadata: `instruction_id_list`, and `kwargs`: one mapping of arguments per instruction
            (those that are None are left out).

    Raises:
        UngradableError: No instructions, an unknown id, or arguments that do not fit it.
    """
    answer = response.rsplit("</think>", 1)[-1].strip()
    names, arguments = _instructions(label, metadata or {})
    # All are looked up first: whether a sample can be graded must not depend on the response.
    checks = [_find(name) for name in names]
    followed = True
    for name, check, keywords in zip(names, checks, arguments, strict=True):
        try:
            followed &= bool(answer) and check(answer, **keywords)
        except (TypeError, ValueError, AttributeError) as error:
            raise UngradableError(f"instruction {name} with {keywords}: {error}") from error
    return float(followed)


def _instructions(
    label: Any, metadata: Mapping[str, Any]
) -> tuple[list[str], list[dict[str, Any]]]:
    source = metadata if "instruction_id_list" in metadata else _mapping(label)
    names = source.get("instruction_id_list")
    if not isinstance(names, list) or not names:
        raise UngradableError(
            "ifbench needs instruction_id_list (and kwargs) in the sample's metadata or label: "
            "check --metadata-key"
        )
    given = source.get("kwargs") or [{} for _ in names]
    if len(given) != len(names):
        raise UngradableError(f"{len(given)} kwargs for {len(names)} instructions {names}")
    arguments = [{k: v for k, v in (one or {}).items() if v is not None} for one in given]
    return [str(name) for name in names], arguments


def _mapping(label: Any) -> Mapping[str, Any]:
    if isinstance(label, str):
        try:
            label = json.loads(label)
        except (ValueError, RecursionError):
            return {}
    return label if isinstance(label, Mapping) else {}


def _find(name: str) -> Callable[..., bool]:
    if name not in CHECKS:
        group = name.split(":", 1)[0]
        known = [known for known in CHECKS if known.startswith(group + ":")] or list(CHECKS)
        raise UngradableError(f"unknown instruction {name!r}; known: {', '.join(known)}")
    return CHECKS[name]
