"""An engine of two ranks on a CPU: log-probs and weight updates."""

import psutil

from slime.weights.expected import checkpoint_shapes
from slime.weights.tensor import TensorWeightUpdater
from tests.engines.real_servers import (
    generate,
    largest_difference,
    make_args,
    make_model,
    running,
    save_model,
)

PROMPTS = [[5, 9, 3], list(range(2, 38))]


def difference_to(model, url):
    pairs = zip(PROMPTS, generate(url, PROMPTS), strict=True)
    return max(largest_difference(model, prompt, answer) for prompt, answer in pairs)


def test_two_ranks_equal_the_hugging_face_model_before_and_after_an_update(tmp_path):
    folder = save_model(tmp_path / "model")
    flags = ("--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2")
    with running(make_args(folder, tmp_path, *flags)) as servers:
        assert len(servers.engine_urls) == 1
        assert difference_to(make_model(seed=0), servers.router_url) < 1e-5
        listening = {
            connection.laddr.ip
            for process in psutil.Process().children(recursive=True)
            for connection in process.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}

        new = make_model(seed=3)
        named = [(n, t) for n, t in new.state_dict().items() if n != "lm_head.weight"]
        updater = TensorWeightUpdater(
            servers.engine_urls, ranks_per_engine=2, expected=checkpoint_shapes(folder)
        )
        updater.update([named], version=1)
        updater.close()
        assert difference_to(new, servers.router_url) < 1e-5
