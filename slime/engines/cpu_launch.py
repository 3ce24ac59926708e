"""SGLang's server on a CPU: `python -m slime.engines.cpu_launch --model-path M ...` takes SGLang's
own options.

The server spawns its scheduler and detokenizer; a spawned child re-imports this module under the
name `__mp_main__`, which is why the stand-ins are installed at module level and not in `main`.
"""

import os
import sys

from slime.engines import cpu_stubs

if __name__ in ("__main__", "__mp_main__"):
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    cpu_stubs.install()


def main(argv: list[str]) -> None:
    """Serve until a signal ends the process."""
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    try:
        run_server(prepare_server_args(argv))
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main(sys.argv[1:])
