"""The plug-in in real SGLang classes, in processes of its own because SGLang needs the import
stand-ins."""

import os
import subprocess
import sys
import textwrap

from slime.engines import command
from tests.engines.test_command import make_args, plan


def run(tmp_path, code):
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(code))
    environment = command.engine_environment(
        make_args(engine_threads=1), plan(), os.environ, tmp_path
    )
    result = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=200
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


PRELUDE = """
    from slime.engines import cpu_stubs
    cpu_stubs.install()
    import torch
    from sglang.srt.plugins import load_plugins
    load_plugins()
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend as Backend
"""


def test_entry_point_is_found_from_a_source_tree_and_in_spawned_processes(tmp_path):
    output = run(
        tmp_path,
        PRELUDE
        + """
    import multiprocessing

    def child():
        load_plugins()
        assert hasattr(Backend._run_sdpa_forward_decode, "__wrapped__")

    assert hasattr(Backend._run_sdpa_forward_decode, "__wrapped__")
    assert hasattr(Backend._run_sdpa_forward_extend, "__wrapped__")
    if __name__ == "__main__":
        process = multiprocessing.get_context("spawn").Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
    """,
    )
    assert output.count("slime: batched CPU attention in process") == 2


def test_plain_attention_is_batched_and_equal_while_the_rest_goes_to_the_original(tmp_path):
    run(
        tmp_path,
        PRELUDE
        + """
    from types import SimpleNamespace
    from slime.engines import batched_attention

    calls = []
    attend = batched_attention.attend
    batched_attention.attend = lambda *a: calls.append(1) or attend(*a)

    torch.manual_seed(0)
    keys, values = torch.randn(40, 2, 8), torch.randn(40, 2, 8)
    table = torch.randperm(39)[:36].view(3, 12).int() + 1
    rows, lengths = torch.tensor([2, 0, 1]), torch.tensor([5, 12, 3])
    prefixes, extends = torch.tensor([2, 0, 2]), torch.tensor([3, 12, 1])

    class Fake(SimpleNamespace):
        _make_sliding_window_mask = staticmethod(Backend._make_sliding_window_mask)

    def both(name, tokens, *tables, **options):
        hooked = getattr(Backend, name)
        query = torch.randn(tokens, 4, 8)
        results, before = [], len(calls)
        for function in (hooked, hooked.__wrapped__):
            output = torch.empty(tokens, 4, 8)
            backend = Fake(slime_attention_plan=None)
            function(backend, query, output, keys, values, table, *tables, scaling=0.3,
                     enable_gqa=True, **options)
            results.append(output)
        torch.testing.assert_close(*results, atol=1e-6, rtol=1e-5)
        return len(calls) - before

    decode = ("_run_sdpa_forward_decode", 3, rows, lengths, None)
    extend = ("_run_sdpa_forward_extend", 16, rows, lengths, prefixes, extends, None)
    assert both(*decode, causal=False) == 1
    assert both(*extend, causal=True) == 1
    assert both(*decode, causal=False, sliding_window_size=2) == 0
    assert both(*extend, causal=True, sliding_window_size=2) == 0
    assert both(*extend, causal=False) == 0
    encoder = torch.tensor([1, 2, 1])
    assert both(*decode[:-1], encoder, causal=False, is_cross_attn=True) == 0
    """,
    )


def test_plugin_leaves_engines_off_the_cpu_alone(tmp_path):
    output = run(
        tmp_path,
        """
    import os
    del os.environ["SGLANG_USE_CPU_ENGINE"]
    from slime.engines import cpu_plugin
    cpu_plugin.register()
    import sys
    assert not any(name.startswith("sglang") for name in sys.modules)
    """,
    )
    assert "batched" not in output


def test_the_buffer_of_routed_experts_is_made_without_cuda(tmp_path):
    run(
        tmp_path,
        PRELUDE
        + """
    from sglang.srt.state_capturer.base import BaseHostCache

    cache = BaseHostCache(num_tokens=3, num_layers=2, topk_size=4, name="experts", device="cpu")
    assert cache.buffer.shape == (3, 2, 4) and not cache.buffer.any()
    cache.destroy()
    """,
    )


def test_engines_fork_where_no_other_thread_can_hold_a_lock(tmp_path):
    run(
        tmp_path,
        """
    import multiprocessing, threading, types
    from slime.engines import cpu_fork

    def start(engine, server_args, *, number):
        return multiprocessing.get_start_method(), engine, number

    multiprocessing.set_start_method("spawn")
    one, two = types.SimpleNamespace(dp_size=1), types.SimpleNamespace(dp_size=2)
    assert cpu_fork.launch(start, str, one, number=3) == ("fork", str, 3)
    assert cpu_fork.launch(start, str, two, number=3)[0] == "spawn"
    assert multiprocessing.get_start_method() == "spawn"
    release = threading.Event()
    threading.Thread(target=release.wait).start()
    assert cpu_fork.launch(start, str, one, number=3)[0] == "spawn"
    release.set()
    """,
    )
