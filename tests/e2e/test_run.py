"""The real loop on the real parts: Ray, router, SGLang, Megatron, checkpoint and export."""

import json
import os
import random
import re
import shutil
import signal
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from slime.arguments.labels import label_path
from tests.e2e.job import Job, assert_nothing_left
from tests.e2e.random_rollouts import save_random_rollouts

SHORT = ("--num-rollout=2", "--eval-interval=2")


def _memory_turns(job: Job, name: str) -> list[tuple[float, str, str]]:
    """(time, who, what) of each time this process gave or took GPU memory."""
    log = (job.run_dir / "logs" / f"{name}.log").read_text()
    found = re.findall(r"^(\d+\.\d{6}) ((?:pause|resume) .*)$", log, re.MULTILINE)
    return [(float(when), name, what) for when, what in found]


def test_a_colocated_run_takes_turns(start_job: Callable[..., Job]) -> None:
    """The order in which GPU memory is given and taken; on a CPU the same calls move nothing."""
    job = start_job(*SHORT, "--colocate", "--offload", "--save-interval=1")
    assert job.wait() == 0, job.text
    for record in job.metrics("rollout"):
        assert record["rollout/weight_lag_max"] == 0
        assert record["train/train_rollout_logprob_abs_diff"] < 1e-4
    turns = _memory_turns(job, "rollout_manager") + _memory_turns(job, "train_rank_0")
    said = [(who.split("_")[0], what) for _, who, what in sorted(turns)]
    update = [
        ("train", "pause optimizer gradients"),
        ("rollout", "resume weights"),
        ("train", "pause weights"),
        ("rollout", "resume kv_cache cuda_graph"),
    ]
    train = [
        ("rollout", "pause weights kv_cache cuda_graph"),
        ("train", "resume weights optimizer gradients"),
    ]
    # The trainer comes in when the engines are out; the export at the end needs it once more.
    assert said == [train[0], *update, *train, *update, *train, *update, *train]


def test_a_trainer_that_ends_while_engines_generate(start_job: Callable[..., Job]) -> None:
    job = start_job(*SHORT, "--release-train", "--save-interval=1")
    assert job.wait() == 0, job.text
    for record in job.metrics("rollout"):
        assert record["rollout/weight_lag_max"] == 0
        assert record["train/train_rollout_logprob_abs_diff"] < 1e-4
        assert record["train/grad_norm"] > 0
    assert (job.run_dir / "released" / "iter_0000000" / "manifest.json").is_file()
    assert (job.run_dir / "checkpoints" / "iter_0000001" / "manifest.json").is_file()
    assert (job.run_dir / "hf" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(("--actor-num-gpus-per-node=2",), id="dp2"),
        pytest.param(("--actor-num-gpus-per-node=2", "--tensor-model-parallel-size=2"), id="tp2"),
    ],
)
def test_two_rollouts(start_job: Callable[..., Job], layout: tuple[str, ...]) -> None:
    job = start_job(*SHORT, *layout)
    job.wait_for_line("rollout 1/")
    exposed = {at: who for at, who in job.listening().items() if not at.startswith("127.0.0.1:")}
    assert exposed == {}
    assert job.wait() == 0, job.text

    rollouts = job.metrics("rollout")
    assert [record["step"] for record in rollouts] == [0, 1]
    for record in rollouts:
        # Made by the version that the trainer had just sent: on-policy to the token.
        assert record["rollout/weight_lag_max"] == 0
        assert record["rollout/off_policy_tokens"] == 0
        # The engines compute with the trainer's very weights.
        assert record["train/train_rollout_logprob_abs_diff"] < 1e-4
        assert record["train/grad_norm"] > 0
    assert [record["step"] for record in job.metrics("eval")] == [0, 2]
    assert "finished 2 rollouts" in job.text

    export = job.run_dir / "hf"
    model = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(export)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "reverse abcd="}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**prompt, max_new_tokens=8, do_sample=False)
    assert answer.shape[1] > prompt["input_ids"].shape[1]
    assert (
        job.run_dir / "checkpoints" / "latest_checkpointed_iteration.txt"
    ).read_text().strip() == "1"
    assert (job.run_dir / "config.yaml").exists()
    assert not job.processes()


def test_a_run_stopped_by_ctrl_c_leaves_nothing_and_goes_on_where_it_was(
    start_job: Callable[..., Job],
) -> None:
    options = ("--num-rollout=4", "--save-interval=1", "--skip-eval-before-train")
    job = start_job(*options)
    job.wait_for_line("rollout 2/4")
    files = job.files()
    job.process.send_signal(signal.SIGINT)
    assert job.wait(30) == 128 + signal.SIGINT
    assert_nothing_left(job, files)
    resume = re.search(r"--load \S+ --run-dir \S+", job.text)
    assert resume, job.text

    again = start_job(*options, *resume[0].split(), run_dir=job.run_dir)
    assert again.wait() == 0, again.text
    steps = [record["step"] for record in again.metrics("rollout")]
    done = len(steps) - len(set(steps))  # rollouts made again: those after the last checkpoint
    assert sorted(set(steps)) == [0, 1, 2, 3]
    assert done <= 1
    saved = job.run_dir / "checkpoints" / "latest_checkpointed_iteration.txt"
    assert saved.read_text().strip() == "3"


def test_joins_a_cluster_and_leaves_it_running(
    start_job: Callable[..., Job], ray_cluster: str
) -> None:
    job = start_job("--num-rollout=1", "--skip-eval-before-train", f"--ray-address={ray_cluster}")
    assert job.wait() == 0, job.text
    assert not job.processes()
    probe = "import ray, sys; ray.init(address=sys.argv[1]); print(ray.cluster_resources()['CPU'])"
    found = subprocess.run(
        [sys.executable, "-c", probe, ray_cluster], capture_output=True, text=True, timeout=60
    )
    assert found.stdout.strip() == "4.0", found.stderr


def test_two_trainings_on_the_same_rollouts_reach_the_same_weights(
    start_job: Callable[..., Job], tmp_path: Path
) -> None:
    dump = save_random_rollouts(tmp_path, 2)
    given = ("--num-rollout=2", "--debug-train-only", f"--load-debug-rollout-data={dump}")
    jobs = [start_job(*given) for _ in range(2)]  # side by side
    weights = []
    for job in jobs:
        assert job.wait() == 0, job.text
        (shard,) = (job.run_dir / "hf").glob("*.safetensors")
        weights.append(load_file(shard))
        assert not (job.run_dir / "logs" / "router.log").exists()
    assert weights[0].keys() == weights[1].keys()
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
)


def test_supervised_fine_tuning_needs_no_engine(
    start_job: Callable[..., Job], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    source = label_path("//examples/quickstart:model", os.environ)
    shutil.copytree(source, model, copy_function=shutil.copyfile)
    model.chmod(0o755)  # what the build makes is read-only
    (model / "chat_template.jinja").write_text(CHATML)
    words = ["".join(sorted(random.Random(i).sample(string.ascii_lowercase, 4))) for i in range(64)]
    chats = [
        [{"role": "user", "content": word}, {"role": "assistant", "content": word[::-1]}]
        for word in words
    ]
    data = tmp_path / "chats.jsonl"
    data.write_text("".join(json.dumps({"input": chat, "label": ""}) + "\n" for chat in chats))
    job = start_job(
        "--debug-train-only",
        "--rollout-function-path=slime.rollout.sft_rollout.generate_rollout",
        "--loss-type=sft_loss",
        "--n-samples-per-prompt=1",
        f"--hf-checkpoint={model}",
        f"--prompt-data={data}",
        "--no-apply-chat-template",
        "--rollout-max-prompt-len=200",
        "--num-rollout=8",
        "--lr=1e-3",
    )
    assert job.wait() == 0, job.text
    losses = [record["train/loss"] for record in job.metrics("rollout")]
    assert len(losses) == 8
    assert losses[-1] < 0.7 * losses[0]
    assert not (job.run_dir / "logs" / "router.log").exists()
