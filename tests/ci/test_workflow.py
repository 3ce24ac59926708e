"""CI's workflow is the one that the tests' tags give, and no tagged test is left out of it."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci.affected_graph import Graph, Node
from ci.generate_github_workflows import (
    AGENT,
    SUITES,
    TEMPLATE,
    WORKFLOW,
    GpuTest,
    read_tests,
    render,
    suites_of,
)
from tools.build_files import targets_of

RUNFILES = Path(os.environ["SLIME_RUNFILES"])
# The source tree: runfiles are links into it.
ROOT = (RUNFILES / WORKFLOW).resolve().parents[2]


@pytest.fixture(scope="module")
def graph() -> Graph:
    """What Bazel says of the end-to-end tests."""
    return read_tests((RUNFILES / "tests/ci/e2e_tests.xml").read_text())


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    return yaml.safe_load((RUNFILES / WORKFLOW).read_text())["jobs"]


def test_the_file_is_what_the_template_gives_now(graph: Graph) -> None:
    fresh = render((RUNFILES / TEMPLATE).read_text(), graph)
    command = "./bazelw run //ci:generate_github_workflows"
    assert (RUNFILES / WORKFLOW).read_text() == fresh, f"stale: {command}"


def test_every_suite_of_the_macro_has_a_job(jobs: dict[str, Any]) -> None:
    rules: dict[str, Any] = {}
    exec((RUNFILES / "tools/bazel/tags.bzl").read_text(), rules)
    assert {AGENT, *SUITES} == set(rules["SUITES"])
    assert {f"e2e-{suite}" for suite in SUITES} | {"cpu", "agent-adapters", "e2e-changed"} == set(
        jobs
    )


def test_every_gpu_test_is_in_the_matrix_of_its_suites(graph: Graph, jobs: dict[str, Any]) -> None:
    in_jobs = {
        (name.removeprefix("e2e-"), entry["target"], entry["gpus"])
        for name, job in jobs.items()
        for entry in job.get("strategy", {"matrix": {"include": []}})["matrix"]["include"]
    }
    tagged = {
        (suite, label, int(counted[1]))
        for label, node in graph.nodes.items()
        for suite in set(SUITES) & set(node.tags)
        if (counted := re.search(r"gpu:(\d+)", " ".join(node.tags)))
    }
    assert in_jobs == tagged
    assert len({label for _, label, _ in tagged}) >= 25


def test_no_other_package_has_gpu_tests_that_the_graph_does_not_show() -> None:
    """Whoever adds one elsewhere adds its package to the query of this BUILD file.

    CPU tests run in the job for CPUs, whatever their suites.
    """
    found = set()
    for file in ROOT.glob("tests/**/BUILD.bazel"):
        package = file.parent.relative_to(ROOT)
        for target in targets_of(ROOT, package):
            tags = target.attributes.get("tags", [])
            if any(tag.startswith("gpu") for tag in tags) or "gpus" in target.attributes:
                found.add(str(package))
    assert found == {"tests/e2e"}


def test_a_gpu_test_without_a_suite_is_refused() -> None:
    graph = Graph({}, {"//t:a": Node("", is_test=True, tags=("gpu:1", "gpu"))})
    with pytest.raises(ValueError, match="//t:a needs GPUs and is in no suite"):
        suites_of(graph)


def test_a_test_of_two_suites_is_in_both_and_cpu_tests_in_none() -> None:
    nodes = {
        "//t:both": Node("", is_test=True, tags=("gpu:2", "ckpt", "image")),
        "//t:cpu": Node("", is_test=True, tags=("cpu", "ckpt")),
    }
    test = GpuTest("//t:both", 2)
    assert suites_of(Graph({}, nodes)) == {"ckpt": [test], "image": [test]}


@pytest.mark.parametrize("suite", [*SUITES, "changed"])
def test_a_label_starts_the_job_of_its_name(suite: str, jobs: dict[str, Any]) -> None:
    job = jobs[f"e2e-{suite}"]
    assert f"'run-ci-{suite}'" in job["if"]
    options = job["container"]["options"].split()
    for option in ("--privileged", "--network", "--ipc", "--shm-size"):
        assert option in options
    assert "memlock=-1" in options


def test_superseded_runs_end_and_dispatch_may_train_on_and_on() -> None:
    workflow = yaml.safe_load((RUNFILES / WORKFLOW).read_text())
    assert workflow["concurrency"]["cancel-in-progress"] is True
    triggers = workflow[True]  # YAML 1.1 reads `on` so
    assert triggers["workflow_dispatch"]["inputs"]["infinite_run"]["type"] == "boolean"
