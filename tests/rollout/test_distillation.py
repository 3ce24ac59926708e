"""A teacher's log-probs from a real engine; the oracle is the Hugging Face model."""

import pytest
import torch

from slime.data.train_batch import convert_samples_to_train_data
from slime.rollout import async_loop, http_client, sglang_rollout
from slime.rollout.errors import RolloutError
from slime.rollout.on_policy_distillation import post_process_rewards, reward_func
from slime.samples.sample import Sample
from tests.engines.real_servers import make_model
from tests.rollout.test_sglang_rollout import source

ROOM = "slime.rollout.on_policy_distillation."


@pytest.fixture
def teacher(args, servers):
    """The engine of these tests is the teacher as well."""
    args.rm_url = servers.engine_urls[0] + "/generate"
    args.custom_rm_path = ROOM + "reward_func"
    args.custom_reward_post_process_path = ROOM + "post_process_rewards"
    return args


def expected(sample):
    model = make_model(seed=0)
    with torch.no_grad():
        log_probs = model(torch.tensor([sample.tokens])).logits[0].log_softmax(-1)
    start = len(sample.tokens) - sample.response_length
    positions = torch.arange(start - 1, len(sample.tokens) - 1)
    return log_probs[positions, torch.tensor(sample.tokens[start:])]


LAST_ID = 38  # of the vocabulary; SGLang reports another token in its place


def test_responses_get_the_teachers_log_probs(args, servers):
    output = sglang_rollout.generate_rollout(args, 0, source(args))
    samples = [sample for group in output.samples for sample in group]
    samples = [s for s in samples if LAST_ID not in s.tokens[-s.response_length :]]
    assert len(samples) > 4
    args.rm_url = servers.engine_urls[0] + "/generate"
    async_loop.run(reward_func(args, samples))
    for sample in samples:
        sample.reward = 0.0
        sample.check_alignment()
        found = torch.tensor(sample.teacher_log_probs)
        torch.testing.assert_close(found, expected(sample), atol=1e-5, rtol=0)
        # student and teacher are one model here, so they agree on every token
        torch.testing.assert_close(found, torch.tensor(sample.rollout_log_probs), atol=1e-5, rtol=0)
    raw, rewards = post_process_rewards(args, samples)
    assert raw == rewards == [0.0] * len(samples)
    data = convert_samples_to_train_data(args, samples, raw, rewards)
    lengths = [len(values) for values in data["teacher_log_probs"]]
    assert lengths == data["response_lengths"]


def test_log_probs_of_other_tokens_are_refused(teacher):
    sample = Sample(index=3, tokens=[5, 6, LAST_ID], response_length=2)
    with pytest.raises(RolloutError, match="sample 3 are not those of its 2 response tokens"):
        async_loop.run(reward_func(teacher, sample))


@pytest.mark.parametrize("response", [1, 4, 6])
def test_only_the_responses_tokens_count(teacher, response):
    sample = Sample(index=3, tokens=[5, 6, 7, 8, 9, 10, 11], response_length=response)
    assert async_loop.run(reward_func(teacher, [sample])) == [0.0]
    assert sample.teacher_log_probs == pytest.approx(expected(sample).tolist(), abs=1e-5)


def test_a_teacher_that_is_gone_or_was_not_asked_is_named(teacher, monkeypatch):
    sample = Sample(index=3, tokens=[5, 6, 7], response_length=2, reward=0.0)
    with pytest.raises(RolloutError, match=r"1 of 1 samples have no log-probs .*\[3\]"):
        post_process_rewards(teacher, [sample])
    monkeypatch.setattr(http_client, "RETRY_SECONDS", 0.2)
    teacher.rm_url = "http://127.0.0.1:1/generate"
    with pytest.raises(RolloutError, match="127.0.0.1:1/generate failed"):
        async_loop.run(reward_func(teacher, sample))
