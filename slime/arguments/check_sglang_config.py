"""The form of `--sglang-config`: keys, types, names, kinds of engines, SGLang options."""

from collections.abc import Iterator, Mapping
from typing import Any

from slime.arguments.errors import Problem, did_you_mean
from slime.arguments.passthrough import TARGETS, check

OPTION = "--sglang-config"
WORKER_TYPES = ("regular", "prefill", "decode", "encoder", "placeholder")
# Key -> its type, and whether it must be there.
_MODEL_KEYS: dict[str, tuple[type, bool]] = {
    "name": (str, True),
    "model_path": (str, False),
    "num_gpus_per_engine": (int, False),
    "server_groups": (list, True),
    "update_weights": (bool, False),
}
_GROUP_KEYS: dict[str, tuple[type, bool]] = {
    "worker_type": (str, True),
    "num_gpus": (int, True),
    "num_gpus_per_engine": (int, False),
    "overrides": (dict, False),
}
_KINDS = {str: "a text", int: "a number, 1 or more", bool: "true or false", list: "a list"}
(_SGLANG,) = (target for target in TARGETS if target.prefix == "sglang")


def check_models(entries: Any) -> Iterator[Problem]:
    """Every mistake in the form of the models: keys, types, worker types, names, overrides."""
    if not isinstance(entries, list) or not entries:
        remedy = "write sglang: [{name: ..., server_groups: [...]}, ...]"
        yield Problem(OPTION, entries, "holds no list of models under `sglang:`", remedy)
        return
    names: set[str] = set()
    for number, entry in enumerate(entries):
        place = f"{OPTION} sglang[{number}]"
        yield from _check_keys(place, entry, _MODEL_KEYS)
        if not isinstance(entry, Mapping):
            continue
        name = entry.get("name")
        if isinstance(name, str) and name in names:
            yield Problem(f"{place}.name", name, "used twice", "give each model its own name")
        names.add(str(name))
        groups = entry.get("server_groups")
        if groups == []:
            yield Problem(f"{place}.server_groups", groups, "has no group", "give one or more")
        for index, group in enumerate(groups if isinstance(groups, list) else []):
            yield from _check_group(f"{place}.server_groups[{index}]", group)
        yield from _check_disaggregation(f"{place}.server_groups", groups)


def _check_group(place: str, group: Any) -> Iterator[Problem]:
    yield from _check_keys(place, group, _GROUP_KEYS)
    if not isinstance(group, Mapping):
        return
    kind = group.get("worker_type")
    if isinstance(kind, str) and kind not in WORKER_TYPES:
        remedy = did_you_mean(kind, WORKER_TYPES) or "known: " + ", ".join(WORKER_TYPES)
        yield Problem(f"{place}.worker_type", kind, "no such kind of engine", remedy)
    overrides = group.get("overrides")
    for option, value in (overrides if isinstance(overrides, Mapping) else {}).items():
        problem = check(_SGLANG, str(option), value, f"{place}.overrides")
        if problem is not None:
            yield problem


def _check_disaggregation(place: str, groups: Any) -> Iterator[Problem]:
    """Prefill needs decode and the other way round, and neither mixes with regular engines."""
    kinds = {
        str(group.get("worker_type"))
        for group in (groups if isinstance(groups, list) else [])
        if isinstance(group, Mapping)
    }
    for one, other in (("prefill", "decode"), ("decode", "prefill")):
        if one in kinds and other not in kinds:
            yield Problem(place, None, f"has {one} but no {other} engines", f"add a {other} group")
    if "regular" in kinds and kinds & {"prefill", "decode"}:
        message = "mixes regular engines with prefill and decode engines"
        yield Problem(place, None, message, "a router balances one or the other")


def _check_keys(
    place: str, mapping: Any, known: Mapping[str, tuple[type, bool]]
) -> Iterator[Problem]:
    if not isinstance(mapping, Mapping):
        yield Problem(place, mapping, "is no mapping", "known keys: " + ", ".join(known))
        return
    for key, value in mapping.items():
        if key not in known:
            remedy = did_you_mean(str(key), known) or "known: " + ", ".join(known)
            yield Problem(f"{place}.{key}", value, "no such key", remedy)
    for key, (kind, needed) in known.items():
        value = mapping.get(key)
        if value is None:
            if needed:
                yield Problem(f"{place}.{key}", None, "needed", f"give {_kind_name(kind)}")
        elif type(value) is not kind or (isinstance(value, int) and kind is int and value < 1):
            yield Problem(f"{place}.{key}", value, f"must be {_kind_name(kind)}")


def _kind_name(kind: type) -> str:
    return _KINDS.get(kind, "a mapping of options")
