"""The schema for editors: fresh, valid, and of one mind with the parser."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from slime.arguments import schema
from slime.arguments.raw import read_raw

FILE = Path(schema.__file__).with_name("config.schema.json")


def test_the_file_is_fresh() -> None:
    remedy = "python -m slime.arguments.schema > slime/arguments/config.schema.json"
    assert FILE.read_text() == schema.render_schema(), remedy


def test_it_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema.config_schema())


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("lr: 0.1\nrollout: {rollout_batch_size: 4, rollout_stop: [a]}\n", True),
        ("rollout:\noptimizer: adam\n", True),
        ("optimizer: {lr: 1}\nrollout_stop: a\n", True),
        ("rollout: {rollout_batch_size: '${env:N:4}'}\n", True),
        ("rollout:\n  rollout_batch_size: ${env:N:4}\n", True),
        ("disable_grpo_std_normalization: true\n", True),
        ("grpo_std_normalization: false\n", True),
        ("sglang: {mem_fraction_static: 0.8}\nrouter_policy: random\n", True),
        ("eps_clip_high: null\nmoe_layer_freq: [0, 1]\n", True),
        ("lrr: 1\n", False),
        ("rollout: {rollout_batchsize: 4}\n", False),
        ("rollout_batch_size: many\n", False),
        ("loss_type: mse\n", False),
        ("colocate: 1\n", False),
        ("dry_run: true\n", False),
        ("rollout_stop_token_ids: [1, x]\n", False),
    ],
)
def test_schema_and_parser_agree(tmp_path: Path, text: str, right: bool) -> None:
    value: Any = yaml.safe_load(text)
    validator = jsonschema.Draft202012Validator(schema.config_schema())
    assert validator.is_valid(value) is right
    (tmp_path / "a.yaml").write_text(text)
    _, problems = read_raw(["--config", "a.yaml"], environment={})
    assert (problems == []) is right
