"""`U`, with which end-to-end tests start runs.

On GPUs it is slime.utils.external_utils.command_utils; with SLIME_CPU_TWIN=1 its twin, which has
the same functions for a tiny model.
"""

import os

IS_TWIN = os.environ.get("SLIME_CPU_TWIN") == "1"
if IS_TWIN:
    from tests.e2e import twin_commands as U
else:
    import slime.utils.external_utils.command_utils as U

__all__ = ["IS_TWIN", "U"]
