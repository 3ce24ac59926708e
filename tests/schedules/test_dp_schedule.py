"""Invariants of the data-parallel schedule, by Hypothesis and on small known inputs."""

from argparse import Namespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slime.schedules.dp_schedule import build_dp_schedule
from slime.schedules.packing import balanced_pack, first_fit_pack

MODEL = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 16,
    "ffn_hidden_size": 128,
    "vocab_size": 100,
    "num_experts": None,
    "swiglu": True,
}


def make_args(**changes: object) -> Namespace:
    base = {
        "use_dynamic_batch_size": True,
        "max_tokens_per_gpu": 10,
        "micro_batch_size": 1,
        "balance_data": False,
        "balance_by_flops": False,
    }
    return Namespace(**MODEL | base | changes)


def parallel(dp: int, cp: int = 1, vpp: int = 1, group: int = 1) -> dict[str, int]:
    return {
        "dp_size": dp,
        "cp_size": cp,
        "vpp_size": vpp,
        "microbatch_group_size_per_vp_stage": group,
    }


@st.composite
def problems(draw: st.DrawFn) -> dict:
    dp, group = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    fan_out = [draw(st.integers(1, 3)) for _ in range(sum(sizes))]
    rollouts = [100 + r for r, n in enumerate(fan_out) for _ in range(n)]
    order = draw(st.permutations(rollouts)) if draw(st.booleans()) else rollouts
    return {
        "args": make_args(
            use_dynamic_batch_size=draw(st.booleans()),
            max_tokens_per_gpu=draw(st.integers(5, 40)),
            micro_batch_size=draw(st.integers(1, 4)),
            balance_data=draw(st.booleans()),
            balance_by_flops=draw(st.booleans()),
        ),
        "parallel": parallel(dp, draw(st.integers(1, 2)), draw(st.integers(1, 2)), group),
        "rollouts": list(order),
        "lengths": [draw(st.integers(1, 50)) for _ in order],
        "sizes": sizes,
    }


def step_group(config: dict) -> int:
    return config["microbatch_group_size_per_vp_stage"] if config["vpp_size"] > 1 else 1


def infeasible(problem: dict, members: list[int]) -> bool:
    """Whether a step has fewer samples than the ranks need micro-batches."""
    args, config = problem["args"], problem["parallel"]
    if args.use_dynamic_batch_size:
        cap = args.max_tokens_per_gpu * config["cp_size"]
        lengths = [problem["lengths"][i] for i in members]
        multiple = config["dp_size"] * step_group(config)
        bound = -(-sum(min(n, cap) for n in lengths) // cap)
        if balanced_pack(lengths, cap, -(-bound // multiple) * multiple):
            return False
        fewest = len(first_fit_pack(lengths, cap))
    else:
        fewest = -(-len(members) // args.micro_batch_size)
    multiple = config["dp_size"] * step_group(config)
    return -(-fewest // multiple) * multiple > len(members)


@settings(max_examples=400, deadline=None)
@given(problems())
def test_invariants(problem: dict) -> None:
    args, config, lengths = problem["args"], problem["parallel"], problem["lengths"]
    place = {r: i for i, r in enumerate(dict.fromkeys(problem["rollouts"]))}
    sizes = problem["sizes"]
    step_of_rollout = [step for step, size in enumerate(sizes) for _ in range(size)]
    step_of = [step_of_rollout[place[r]] for r in problem["rollouts"]]
    num_steps = len(sizes)
    steps = [[i for i, s in enumerate(step_of) if s == step] for step in range(num_steps)]
    one_size = sizes[0] if len(set(sizes)) == 1 else sizes
    keywords = {"global_batch_size": one_size, "rollout_indices": problem["rollouts"]}
    if any(infeasible(problem, members) for members in steps):
        with pytest.raises(ValueError, match=r"\d+ samples make \d+ micro-batches"):
            build_dp_schedule(args, config, lengths, **keywords)
        return
    partitions, micro_batches, counts, batch_sizes = build_dp_schedule(
        args, config, lengths, **keywords
    )
    assert len(partitions) == len(micro_batches) == config["dp_size"]
    assert sorted(i for part in partitions for i in part) == list(range(len(lengths)))
    assert batch_sizes == sizes and len(counts) == num_steps
    group = step_group(config)
    assert all(count % group == 0 and count > 0 for count in counts)
    for part, mine in zip(partitions, micro_batches, strict=True):
        assert [i for members in mine for i in members] == list(range(len(part)))
        assert len(mine) == sum(counts) and all(mine)
        steps_seen = [[step_of[part[i]] for i in members] for members in mine]
        expected = [step for step, count in enumerate(counts) for _ in range(count)]
        assert [set(seen) for seen in steps_seen] == [{step} for step in expected]
        for members in mine:
            if args.use_dynamic_batch_size:
                tokens = sum(lengths[part[i]] for i in members)
                assert tokens <= args.max_tokens_per_gpu * config["cp_size"] or len(members) == 1
            else:
                assert len(members) <= args.micro_batch_size


def test_three_full_micro_batches_on_two_ranks_name_the_numbers() -> None:
    with pytest.raises(ValueError, match=r"3 samples make 3 micro-batches; dp_size 2 .* needs 4"):
        build_dp_schedule(
            make_args(), parallel(2), [10, 10, 10], global_batch_size=3, rollout_indices=[0, 1, 2]
        )


def test_an_indivisible_number_of_rollouts_names_the_numbers() -> None:
    with pytest.raises(ValueError, match=r"256 rollouts .* global_batch_size = 85"):
        build_dp_schedule(
            make_args(), parallel(1), [5] * 256, global_batch_size=85, rollout_indices=range(256)
        )


@pytest.mark.parametrize("sizes", [[3, 1], [5, 0], [], [2, 2, 2]])
def test_step_sizes_that_do_not_fit_name_the_numbers(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match=r"5 rollouts \(5 samples\) .* steps of \["):
        build_dp_schedule(
            make_args(), parallel(1), [5] * 5, global_batch_size=sizes, rollout_indices=range(5)
        )


def test_every_step_may_have_its_own_number_of_rollouts() -> None:
    _, micro_batches, counts, sizes = build_dp_schedule(
        make_args(), parallel(1), [5] * 6, global_batch_size=[4, 2], rollout_indices=range(6)
    )
    assert sizes == [4, 2] and counts == [2, 1]
    assert micro_batches == [[[0, 1], [2, 3], [4, 5]]]


def test_a_giant_stands_alone_also_with_flops_balancing() -> None:
    args = make_args(balance_by_flops=True)
    partitions, micro_batches, counts, _ = build_dp_schedule(
        args, parallel(2), [50, 4, 4, 3, 3], global_batch_size=5, rollout_indices=list(range(5))
    )
    assert counts == [2]  # the giant, 4 + 4 and 3 + 3 are three; four are needed
    for part, mine in zip(partitions, micro_batches, strict=True):
        for members in mine:
            samples = [part[i] for i in members]
            assert samples == [0] or 0 not in samples


def test_balancing_equalises_ranks() -> None:
    lengths = [9, 1, 8, 2, 7, 3, 6, 4]
    config = {"global_batch_size": 8, "rollout_indices": list(range(8))}

    def loads(**flags: bool) -> list[int]:
        args = make_args(use_dynamic_batch_size=False, **flags)
        return [
            sum(lengths[i] for i in part)
            for part in build_dp_schedule(args, parallel(2), lengths, **config)[0]
        ]

    assert loads() == [30, 10]
    assert loads(balance_data=True) == [20, 20]


def test_flops_balancing_splits_by_compute_not_by_tokens() -> None:
    """One long sequence costs more than four quarters of it, so its rank gets fewer tokens
    elsewhere.
    """
    lengths = [4000, 1000, 1000, 1000, 1000, 1000, 1000, 2000]
    args = make_args(use_dynamic_batch_size=False, balance_by_flops=True)
    partitions, *_ = build_dp_schedule(
        args, parallel(2), lengths, global_batch_size=8, rollout_indices=list(range(8))
    )
    tokens = {0 in part: sum(lengths[i] for i in part) for part in partitions}
    assert tokens[True] >= tokens[False] and 7 not in next(p for p in partitions if 0 in p)


def test_context_parallel_ranks_share_the_cap() -> None:
    for cp, expected in [(1, [4]), (2, [2])]:
        _, _, counts, _ = build_dp_schedule(
            make_args(), parallel(1, cp), [10] * 4, global_batch_size=4, rollout_indices=range(4)
        )
        assert counts == expected


def test_a_fanned_out_rollout_counts_once_and_stays_in_one_step() -> None:
    rollouts = [7, 8, 7, 9, 7, 5]
    partitions, micro_batches, counts, sizes = build_dp_schedule(
        make_args(), parallel(1), [5] * 6, global_batch_size=2, rollout_indices=rollouts
    )
    assert sizes == [2, 2] and counts == [2, 1]
    by_step = [
        sorted({rollouts[partitions[0][i]] for members in batch for i in members})
        for batch in (micro_batches[0][:2], micro_batches[0][2:])
    ]
    assert by_step == [[7, 8], [5, 9]]
