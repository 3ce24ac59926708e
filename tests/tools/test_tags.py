"""The rules for tags: tags.bzl is Starlark and plain Python at once, so it is run as the latter."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("SLIME_RUNFILES", "."))
CONFIG = re.compile(r"^test:([\w-]+) (.*)$", re.MULTILINE)


def refuse(message: str) -> None:
    raise ValueError(message)


RULES = {"fail": refuse}
exec((ROOT / "tools/bazel/tags.bzl").read_text(), RULES)


def test_a_cpu_test_keeps_its_tags() -> None:
    assert RULES["test_tags"]("t", ["cpu", "slow", "agent"]) == ["cpu", "slow", "agent"]
    assert RULES["gpus_of"](["cpu"]) == 0


def test_a_gpu_test_is_found_by_gpu_and_never_cached() -> None:
    tags = RULES["test_tags"]("t", ["gpu:8", "ckpt"])
    assert tags[:2] == ["gpu:8", "ckpt"]
    assert {"gpu", "external", "no-cache", "no-sandbox"} <= set(tags)
    assert RULES["gpus_of"](tags) == 8


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ([], "give one of cpu and gpu:N"),
        (["slow"], "give one of cpu and gpu:N"),
        (["cpu", "gpu:1"], "give one of cpu and gpu:N"),
        (["gpu:1", "gpu:2"], "give one of cpu and gpu:N"),
        (["gpu:0"], "'gpu:0': write the number"),
        (["gpu:all"], "'gpu:all': write the number"),
        (["gpu"], "give one of cpu and gpu:N"),
        (["gpu", "gpu:1"], "'gpu': not one of"),  # follows from gpu:1
        (["cpu", "megaton"], "'megaton': not one of"),
    ],
)
def test_wrong_tags_are_refused(tags: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        RULES["test_tags"]("t", tags)


def test_bazelrc_has_a_config_for_each_suite_and_machine() -> None:
    configs: dict[str, str] = {}
    for name, options in CONFIG.findall((ROOT / ".bazelrc").read_text()):
        configs[name] = f"{configs.get(name, '')} {options}"
    assert set(configs) == {"cpu", "gpu", "cpu-twin", *RULES["SUITES"]}
    assert "--nocache_test_results" in configs["gpu"]
    for suite in RULES["SUITES"]:
        assert re.search(rf"--test_tag_filters={suite}(,|$)", configs[suite])
