"""The token ledger of multi-turn responses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime.samples.ledger import TokenLedger, common_prefix_length
from slime.samples.sample import Sample


def test_a_rendering_that_differs_from_what_is_held() -> None:
    ledger = TokenLedger()
    assert ledger.add_turn([1, 2], [10, 11, 12, 13], [-1.0, -2.0, -3.0, -4.0]) == 0
    assert ledger.add_turn([1, 2, 10, 11, 99, 5], [7], [-5.0]) == 2
    assert ledger.tokens == [1, 2, 10, 11, 99, 5, 7]
    assert ledger.loss_mask == [1, 1, 0, 0, 1]
    assert ledger.log_probs == [-1.0, -2.0, 0.0, 0.0, -5.0]


def test_a_prompt_that_ends_inside_what_is_held() -> None:
    """The engine went on from the middle of an answer: the rest of the old answer is gone."""
    ledger = TokenLedger()
    ledger.add_turn([1], [2, 3, 4], [-2.0, -3.0, -4.0])
    assert ledger.add_turn([1, 2], [5], [-5.0]) == 2
    assert (ledger.tokens, ledger.loss_mask) == ([1, 2, 5], [1, 1])


def test_what_is_written_to_a_sample_is_aligned() -> None:
    ledger = TokenLedger()
    ledger.add_turn([1, 2], [3], [-0.5])
    ledger.add_turn([1, 2, 3, 4], [5, 6], trainable=False)
    sample = Sample()
    ledger.write_to(sample)
    sample.check_alignment()
    assert (sample.tokens, sample.response_length) == ([1, 2, 3, 4, 5, 6], 4)
    assert (sample.loss_mask, sample.rollout_log_probs) == ([1, 0, 0, 0], [-0.5, 0.0, 0.0, 0.0])


def test_another_trajectory_and_missing_log_probs_change_nothing() -> None:
    ledger = TokenLedger()
    ledger.add_turn([1, 2], [3], [-0.5])
    for prompt, output, log_probs, message in (
        ([1, 9, 3], [4], [-1.0], "differs from the first one at token 1 of 2"),
        ([1], [4], [-1.0], "differs from the first one at token 1 of 2"),
        ([1, 2, 3], [4], None, "no log-probs for 1 tokens"),
        ([1, 2, 3], [4], [-1.0, -2.0], "2 log-probs for 1 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            ledger.add_turn(prompt, output, log_probs)
    assert (ledger.tokens, ledger.loss_mask) == ([1, 2, 3], [1])


TOKENS = st.lists(st.integers(0, 3), max_size=6)


@given(
    first=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    turns=st.lists(st.tuples(TOKENS, TOKENS), min_size=1, max_size=6),
)
def test_any_conversation(first: list[int], turns: list[tuple[list[int], list[int]]]) -> None:
    """The ledger holds the last prompt and output; a token is trained exactly where the model made
    it after the very tokens that stand before it now.
    """
    ledger = TokenLedger()
    made: list[tuple[tuple[int, ...], int]] = []  # (context, token) of everything generated
    for number, (tail, output) in enumerate(turns):
        tail = tail if number else []
        prompt = first + tail
        held = list(ledger.tokens)
        dropped = ledger.add_turn(prompt, output, [-float(token) - 1 for token in output])
        assert ledger.tokens == prompt + output
        assert dropped == len(held) - common_prefix_length(held, prompt)
        made += [(tuple(prompt + output[:i]), token) for i, token in enumerate(output)]
        response = ledger.tokens[len(first) :]
        assert len(response) == len(ledger.loss_mask) == len(ledger.log_probs)
        rows = zip(response, ledger.loss_mask, ledger.log_probs, strict=True)
        for i, (token, trained, log_prob) in enumerate(rows):
            context = tuple(ledger.tokens[: len(first) + i])
            if trained:
                assert (context, token) in made and log_prob == -token - 1
            else:
                assert log_prob == 0.0
            if i >= len(tail):  # the last output
                assert trained == 1
