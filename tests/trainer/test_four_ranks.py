"""Four ranks: combinations of layouts, against plain Hugging Face training."""

from __future__ import annotations

import layouts
import pytest

CASES = [
    ("tp2-cp2-sp", "qwen3"),
    ("tp2-cp2-sp", "deepseek_v3"),
    ("tp2-pp2", "qwen2"),
    ("ep2-tp2-sp", "qwen3_moe"),
    ("ep2-tp2-sp", "glm4_moe"),
]


@pytest.fixture(scope="module")
def results(hf_model, tmp_path_factory: pytest.TempPathFactory):
    cases = [
        layouts.case(f"{layout}-{kind}", layout, hf_model(kind, layouts.is_tied(kind)))
        for layout, kind in CASES
    ]
    return layouts.run_cases(4, cases, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize(("layout", "kind"), CASES)
def test_layout_equals_hugging_face(
    layout, kind, results, hf_model, args_for, rollout_of, reference_of
):
    rollouts = [rollout_of(seed) for seed in range(layouts.ROLLOUTS)]
    args = args_for(hf_model(kind, layouts.is_tied(kind)), **layouts.FULL_LOSS)
    layouts.check_against_reference(results, f"{layout}-{kind}", 4, reference_of(args, rollouts))
