"""SGLang's server on a CPU: `python -m slime.engines.cpu_launch --model-path M ...` takes SGLang's
own options.

The server forks its scheduler and detokenizer where it can (`cpu_fork`); a child that it spawns
re-imports this module under the name `__mp_main__`, which is why the stand-ins are installed at
module level and not in `main`.
"""

import os
import sys
import traceback
from pathlib import Path

from slime.engines import cpu_stubs

_PLUGINS = str(Path(__file__).parent / "sglang_plugins")

if __name__ in ("__main__", "__mp_main__"):
    if _PLUGINS not in sys.path:  # a server that somebody starts by hand gets slime's plug-in too
        sys.path.append(_PLUGINS)
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    cpu_stubs.install()


def main(argv: list[str]) -> None:
    """Serve until a signal or an error ends the process."""
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    code = 1
    try:
        run_server(prepare_server_args(argv))
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        kill_process_tree(os.getpid(), include_parent=False)
        # A server that could not bind its port has threads that would keep the process for ever.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
