"""Every kind of wrong configuration is refused, with the option, its value and a remedy; all at
once.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments.errors import ConfigError, Problem, render_problems
from slime.arguments.parse import parse_args

Collect = Callable[..., list[Problem]]


def test_the_shortest_right_command_line_has_no_problem(problems_of: Collect) -> None:
    assert problems_of() == []


# Words appended to a right command line (16 prompts x 8 samples, model of 2 layers, 4 heads, 256
# positions) -> option that is named, a part of the message, a part of the remedy.
CASES = [
    # sizes
    ("--rollout-batch-size 0", "--rollout-batch-size", "at least 1", ""),
    ("--lr nan", "--lr", "at least 0", ""),
    ("--rollout-top-p 1.5", "--rollout-top-p", "between 0 and 1", ""),
    ("--rollout-top-p 0", "--rollout-top-p", "keeps no token", "above 0"),
    ("--rollout-top-k 0", "--rollout-top-k", "-1 (all tokens)", ""),
    ("--eps-clip-c 0.5", "--eps-clip-c", "above 1", ""),
    (
        "--actor-num-gpus-per-node 3 --tensor-model-parallel-size 2",
        "--actor-num-gpus-per-node",
        "3 ranks cannot be split into model replicas of 2",
        "multiple of 2",
    ),
    (
        "--rollout-num-gpus 3 --rollout-num-gpus-per-engine 2",
        "--rollout-num-gpus",
        "no multiple of --rollout-num-gpus-per-engine 2",
        "multiple of 2",
    ),
    ("--device cuda", "--rollout-num-gpus", "needed", "--colocate"),
    (
        "--rollout-batch-size 16 --n-samples-per-prompt 16 --num-steps-per-rollout 3",
        "--num-steps-per-rollout",
        "16 prompts x 16 samples = 256 cannot be split into 3 equal steps",
        "2 or 4",
    ),
    (
        "--global-batch-size 48",
        "--global-batch-size",
        "= 128 cannot be split into steps of 48",
        "32 or 64",
    ),
    (
        "--global-batch-size 256",
        "--global-batch-size",
        "= 128 cannot be split into steps of 256",
        "128",
    ),
    (
        "--global-batch-size 32 --num-steps-per-rollout 2",
        "--global-batch-size",
        "32 per step x 2 steps = 64",
        "give one of",
    ),
    (
        "--global-batch-size 2 --actor-num-gpus-per-node 4",
        "--global-batch-size",
        "4 data-parallel ranks",
        "multiple of 4",
    ),
    (
        "--global-batch-size 2 --actor-num-gpus-per-node 4 --use-dynamic-batch-size"
        " --max-tokens-per-gpu 9",
        "--global-batch-size",
        "some would have nothing to do",
        "fewer ranks",
    ),
    ("--use-dynamic-batch-size", "--max-tokens-per-gpu", "needed", "how many tokens"),
    ("--over-sampling-batch-size 8", "--over-sampling-batch-size", "less than", "at least"),
    # lengths
    ("--rollout-max-context-len 512", "--rollout-max-context-len", "256 positions", "256"),
    ("--rollout-max-response-len 256", "--rollout-max-response-len", "no room", "less than 256"),
    ("--rollout-max-prompt-len 250", "--rollout-max-prompt-len", "256 tokens", "at most 244"),
    # dumps
    ("--save-debug-rollout-data d{x}", "--save-debug-rollout-data", "the same file", "{rollout"),
    ("--save-debug-rollout-data {id}", "--save-debug-rollout-data", "the same file", "{rollout"),
    ("--save-debug-train-data d_{rank}.pt", "--save-debug-train-data", "the same file", "{rollout"),
    # JSON
    ("--multimodal-keys 3", "--multimodal-keys", "must be a JSON object", "key"),
    (
        '--multimodal-keys {"images":"i"}',
        "--multimodal-keys images",
        "no such kind",
        "did you mean image?",
    ),
    ('--multimodal-keys {"image":3}', "--multimodal-keys image", "must be a text", "quotes"),
    ('--train-env-vars {"A":1}', "--train-env-vars A", "must be a text", "quotes"),
    ("--apply-chat-template-kwargs []", "--apply-chat-template-kwargs", "a JSON object", ""),
    # model and layout
    ("--num-layers 3", "--num-layers", "config.json says 2", "leave the option out"),
    ("--vocab-size 99", "--vocab-size", "config.json says 100", "leave the option out"),
    ("--rotary-base 5000", "--rotary-base", "config.json says 10000", "leave the option out"),
    ("--no-qk-layernorm", "--qk-layernorm", "config.json says True", "leave the option out"),
    (
        "--untie-embeddings-and-output-weights",
        "--untie-embeddings-and-output-weights",
        "config.json says False",
        "leave the option out",
    ),
    (
        "--tensor-model-parallel-size 4 --actor-num-gpus-per-node 4",
        "--tensor-model-parallel-size",
        "num_query_groups 2 cannot be split over 4",
        "divisor of 2",
    ),
    (
        "--pipeline-model-parallel-size 4 --actor-num-gpus-per-node 4",
        "--pipeline-model-parallel-size",
        "2 layers cannot be split over 4 stages",
        "divisor",
    ),
    (
        "--expert-model-parallel-size 2 --actor-num-gpus-per-node 2",
        "--expert-model-parallel-size",
        "no experts",
        "leave it out",
    ),
    # algorithm
    ("--n-samples-per-prompt 1", "--n-samples-per-prompt", "every advantage is 0", "2 or more"),
    ("--use-kl-loss", "--ref-load", "--use-kl-loss needs a reference", "--ref-load "),
    ("--kl-coef 0.1", "--ref-load", "--kl-coef 0.1 needs a reference", "--ref-load "),
    ("--kl-loss-coef 0.1", "--kl-loss-coef", "has no effect", "--use-kl-loss"),
    ("--ref-update-interval 5", "--ref-update-interval", "no reference to update", "--use-kl-loss"),
    ("--rm-type dapo", "--reward-key", "score, acc, pred", "--reward-key score"),
    ("--rm-type dapo --reward-key x", "--reward-key", "score, acc, pred", "score"),
    ("--rm-type mth", "--rm-type", "no such grader", "did you mean math?"),
    ("--rm-type remote_rm", "--rm-url", "needed", "address"),
    ("--loss-type custom_loss", "--custom-loss-function-path", "needed", "name the loss"),
    ("--use-tis --use-rollout-logprobs", "--use-tis", "both correct", "drop"),
    ("--num-critic-only-steps 2", "--num-critic-only-steps", "no critic", "ppo"),
    ("--use-opd", "--opd-type", "needed", "sglang or megatron"),
    ("--opd-type sglang", "--opd-type", "no effect", "--use-opd"),
    ("--eps-clip-c 1", "--eps-clip-c", "above 1", ""),
    (
        "--custom-tis-function-path slime.trainer.importance.mask_by_token",
        "--custom-tis-function-path",
        "no effect",
        "--use-tis",
    ),
    ("--use-unbiased-kl", "--use-unbiased-kl", "no effect", "--use-kl-loss"),
    (
        "--keep-old-actor --use-rollout-logprobs",
        "--keep-old-actor",
        "no effect",
        "--use-rollout-logprobs",
    ),
    ("--critic-num-nodes 2", "--critic-num-nodes", "no effect", "ppo"),
    ("--rollout-temperature 0", "--rollout-temperature", "greedy", "--eval-temperature"),
    ("--min-lr 1", "--min-lr", "is above --lr", "at most --lr"),
    ("--lr-warmup-iters 60", "--lr-warmup-iters", "only 60 steps", "fewer"),
    ("--bf16 --fp16", "--bf16", "contradicts --fp16", "keep one"),
    ("--recompute-granularity full", "--recompute-method", "needed", "uniform or block"),
    (
        "--mask-offpolicy-in-partial-rollout",
        "--mask-offpolicy-in-partial-rollout",
        "has no effect",
        "--partial-rollout",
    ),
    # modes and files
    ("--debug-train-only", "--debug-train-only", "nothing to train on", "--load-debug"),
    ("--debug-rollout-only --debug-train-only", "--debug-rollout-only", "contradicts", "keep one"),
    ("--eval-interval 5", "--eval-interval", "nothing to evaluate on", "--eval-prompt-data"),
    ("--eval-prompt-data a b c", "--eval-prompt-data", "odd number", "NAME PATH"),
    ("--eval-prompt-data a none.jsonl", "--eval-prompt-data a", "no such file", ".jsonl"),
    ("--prompt-data none.jsonl", "--prompt-data", "no such file", ".jsonl or .parquet"),
    ("--prompt-data model", "--prompt-data", "no such file", ""),
    ("--prompt-data model/tokenizer.json@[3:]", "--prompt-data", "", ""),
    ("--prompt-data model/model.safetensors", "--prompt-data", "unknown kind of file", ""),
    ("--prompt-data //nowhere:data", "--prompt-data", "not built", "./bazelw build //nowhere:data"),
    ("--load nowhere", "--load", "no such directory", ""),
    ("--ref-load .", "--ref-load", "holds neither", ""),
    ("--save train.jsonl", "--save", "is not a directory", ""),
    ("--save-hf train.jsonl/hf", "--save-hf", "train.jsonl is not a directory", "write to"),
    ("--save-hf hf_{step}", "--save-hf", "another name than {rollout_id}", ""),
    (
        "--save-debug-rollout-data train.jsonl/{rollout_id}",
        "--save-debug-rollout-data",
        "train.jsonl is not a directory",
        "write to",
    ),
    ("--load-debug-rollout-data x", "--load-debug-rollout-data", "no such file", ""),
    ("--load-debug-rollout-data x{y}", "--load-debug-rollout-data", "{rollout_id}", ""),
    ("--load-debug-rollout-data x_{rollout_id}", "--load-debug-rollout-data", "no such file", ""),
    # rollouts
    (
        "--debug-train-only --rollout-function-path slime.rollout.forged_rollout.generate_rollout",
        "--load-forge-rollout-data",
        "needed to forge",
        "JSON file",
    ),
    (
        "--rollout-function-path "
        "slime.rollout.fully_async_rollout.generate_rollout_fully_async "
        "--update-weights-interval 4 --max-weight-lag 3",
        "--max-weight-lag",
        "every 4 rollouts",
        "at least 4",
    ),
    (
        "--custom-rm-path slime.rollout.on_policy_distillation.reward_func",
        "--rm-url",
        "needed",
        "teacher",
    ),
    (
        "--custom-rm-path slime.rollout.on_policy_distillation.reward_func --rm-url http://a:1/x "
        "--rollout-temperature 0.7",
        "--rollout-temperature",
        "at temperature 1",
        "1.0",
    ),
]


@pytest.mark.parametrize(("words", "option", "message", "remedy"), CASES, ids=[c[0] for c in CASES])
def test_refused(problems_of: Collect, words: str, option: str, message: str, remedy: str) -> None:
    problems = problems_of(*words.split())
    named = [problem for problem in problems if problem.option.startswith(option)]
    assert named, problems
    assert message in named[0].message
    assert remedy in named[0].remedy


ALLOWED = [
    "--n-samples-per-prompt 1 --advantage-estimator reinforce_plus_plus",
    "--n-samples-per-prompt 1 --disable-rewards-normalization",
    "--n-samples-per-prompt 1 --loss-type sft_loss",
    "--use-kl-loss --kl-loss-coef 0.1 --ref-load model",
    "--rm-type dapo --reward-key acc",
    "--rm-type boxed_math",
    "--num-layers 2 --vocab-size 100",
    "--vocab-size 128 --make-vocab-size-divisible-by 128",
    "--rollout-max-prompt-len 244",
    "--tensor-model-parallel-size 2 --actor-num-gpus-per-node 4",
    "--global-batch-size 32 --num-steps-per-rollout 4",
    "--load ckpt --save ckpt",
    "--load model",
    "--eval-temperature 0",
    "--prompt-data train.jsonl@[2:5]",
    "--lr 0 --weight-decay 0",
    "--num-rollout 1 --lr-warmup-iters 0",
    "--memory-snapshot-path a-file.pickle",
    "--debug-train-only --n-samples-per-prompt 1 --loss-type sft_loss "
    "--rollout-function-path slime.rollout.sft_rollout.generate_rollout",
]


@pytest.mark.parametrize("words", ALLOWED)
def test_allowed(problems_of: Collect, words: str) -> None:
    assert problems_of(*words.split()) == []


@pytest.mark.parametrize(
    "option",
    [
        "--hf-checkpoint",
        "--prompt-data",
        "--rollout-batch-size",
        "--num-rollout",
        "--rollout-max-response-len",
        "--lr",
        "--rm-type",
    ],
)
def test_needed(argv: list[str], option: str) -> None:
    place = argv.index(option)
    with pytest.raises(ConfigError) as caught:
        parse_args(argv=argv[:place] + argv[place + 2 :])
    assert [problem.option for problem in caught.value.problems] == [option]
    assert caught.value.problems[0].remedy


def test_all_problems_come_at_once_and_numbered(problems_of: Collect) -> None:
    words = "--lr x --num-layers 3 --use-kl-loss --rm-type dapo --prompt-data none.jsonl --foo"
    problems = problems_of(*words.split())
    options = {problem.option for problem in problems}
    assert options == {
        "--lr",
        "--num-layers",
        "--ref-load",
        "--reward-key",
        "--prompt-data",
        "--foo",
    }
    text = render_problems(problems)
    assert "wrong in 6 places" in text
    assert [line.split(".")[0].strip() for line in text.splitlines() if ". " in line[:6]] == list(
        "123456"
    )


def test_a_value_of_a_file_is_named_with_its_line(problems_of: Collect, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model:\n  num_layers: 3\n")
    (problem,) = problems_of("--config", "a.yaml")
    assert problem.where == "a.yaml:2"
    assert str(problem).startswith("--num-layers = 3 (a.yaml:2): the model's config.json says 2")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{x\n", "not JSON"),
        (b"[1]\n", "not a JSON object but list"),
        (b'{"input": "a"}\n', "has no key 'label' (--label-key); it has: input"),
        (b'{"prompt": "a", "label": "b"}\n', "has no key 'input' (--input-key)"),
        (b'{"input": "\xff", "label": ""}\n', "not UTF-8"),
    ],
)
def test_a_bad_line_is_named_with_file_and_number(
    problems_of: Collect, prompts: Path, line: bytes, message: str
) -> None:
    good = prompts.read_bytes()
    prompts.write_bytes(good + b"\n" + line + good)
    (problem,) = problems_of()
    assert problem.option == f"--prompt-data {prompts}:12"
    assert message in problem.message


def test_many_bad_lines_are_summed_up(problems_of: Collect, prompts: Path) -> None:
    prompts.write_text("x\n" * 100)
    problems = problems_of()
    assert len(problems) == 6
    assert problems[-1].message == "95 more bad lines"


def test_an_empty_file_holds_no_prompts(problems_of: Collect, prompts: Path) -> None:
    prompts.write_text("\n\n")
    (problem,) = problems_of()
    assert problem.message == "holds no prompts"


def test_data_may_name_the_grader_itself(argv: list[str], prompts: Path) -> None:
    line = {"input": "a", "label": "b", "metadata": {"rm_type": "math"}}
    prompts.write_text(json.dumps(line) + "\n")
    place = argv.index("--rm-type")
    parse_args(argv=argv[:place] + argv[place + 2 :])


@pytest.mark.parametrize(
    ("breakage", "message"),
    [
        (lambda model: (model / "config.json").unlink(), "no config.json"),
        (lambda model: (model / "config.json").write_text("{"), "cannot be read"),
        (lambda model: (model / "config.json").write_text("[]"), "cannot be read"),
        (lambda model: (model / "tokenizer.json").unlink(), "holds no tokenizer"),
        (lambda model: (model / "model.safetensors").unlink(), "holds no weights"),
        (
            lambda model: (model / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "one.safetensors", "b": "model.safetensors"}}'
            ),
            "1 of its 2 weight files are missing: one.safetensors",
        ),
        (lambda model: model.rename(model.parent / "moved"), "no such directory"),
    ],
    ids=["no config", "bad config", "list", "no tokenizer", "no weights", "missing shard", "moved"],
)
def test_a_model_path_that_is_no_model(
    problems_of: Collect, model: Path, breakage: Callable[[Path], object], message: str
) -> None:
    breakage(model)
    (problem,) = problems_of()
    assert problem.option == "--hf-checkpoint"
    assert message in problem.message


@pytest.mark.parametrize(
    ("tracker", "words", "message"),
    [
        ("19", "", ""),
        ("19", "--ckpt-step 9", "no complete checkpoint of iteration 9"),
        ("29", "", "no complete checkpoint of iteration 29"),
        ("29", "--ckpt-step 19", ""),
        ("x", "", "holds 'x', not an iteration"),
        ("", "", "holds '', not an iteration"),
        ("29", "--use-previous-checkpoint", ""),
        ("x", "--use-previous-checkpoint", ""),
    ],
)
@pytest.mark.parametrize("own", [False, True], ids=["another run's", "the own --save"])
def test_a_checkpoint_to_load_is_complete(
    problems_of: Collect, tmp_path: Path, tracker: str, words: str, message: str, own: bool
) -> None:
    folder = tmp_path / "saved"
    for name in ("iter_0000019", "iter_0000029"):
        (folder / name).mkdir(parents=True)
    (folder / "iter_0000019" / "metadata.json").write_text("{}")
    (folder / "latest_checkpointed_iteration.txt").write_text(tracker)
    save = ["--save", str(folder)] if own else []
    found = problems_of("--load", str(folder), *save, *words.split())
    assert [problem.option for problem in found] == (["--load"] if message else [])
    assert all(message in problem.message for problem in found)
    remedy = "it has: iter_0000019; --use-previous-checkpoint"
    assert all(problem.remedy.startswith(remedy) for problem in found)


def test_a_name_on_the_hub_is_explained(problems_of: Collect) -> None:
    (problem,) = problems_of("--hf-checkpoint", "Qwen/Qwen3-4B")
    assert "hf download Qwen/Qwen3-4B" in problem.remedy


def test_a_mixture_of_experts_needs_fitting_ranks(problems_of: Collect, model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    config |= {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    (model / "config.json").write_text(json.dumps(config))
    words = "--actor-num-gpus-per-node 4 --expert-model-parallel-size 4"
    (problem,) = problems_of(*words.split())
    assert problem.message == "the model's 6 experts cannot be split over 4 ranks"
    words = "--actor-num-gpus-per-node 2 --tensor-model-parallel-size 2"
    (problem,) = problems_of(*words.split())
    assert problem.option == "--sequence-parallel"
    assert problems_of(*words.split(), "--sequence-parallel") == []


def test_replay_needs_no_prompts_and_no_grader(argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "r_0.json").write_text("{}")
    words = [word for word in argv if word not in ("--rm-type", "math")]
    place = words.index("--prompt-data")
    words = words[:place] + words[place + 2 :]
    args = parse_args(argv=[*words, "--load-debug-rollout-data", "r_{rollout_id}.json"])
    assert args.load_debug_rollout_data == f"{tmp_path}/r_{{rollout_id}}.json"


def test_a_configuration_error_survives_the_way_between_processes() -> None:
    import pickle

    error = ConfigError([Problem("--lr", 1, "wrong", "right", "a.yaml:1")])
    copy = pickle.loads(pickle.dumps(error))
    assert copy.problems == error.problems
    assert str(copy) == str(error)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("--rollout-num-gpus 99999999999", "--rollout-num-gpus"),
        ("--train-threads 1000000", "--train-threads"),
        ("--seed 4294967296", "--seed"),
    ],
)
def test_absurd_sizes_are_refused(words: str, option: str, problems_of: Collect) -> None:
    assert option in [problem.option for problem in problems_of(*words.split())]


def test_a_deeply_nested_line_is_named(prompts: Path, problems_of: Collect) -> None:
    prompts.write_text('{"input": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    (problem,) = problems_of()
    assert "nested too deeply" in str(problem)
