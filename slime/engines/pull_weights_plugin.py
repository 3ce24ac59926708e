"""SGLang plug-in (entry point group `sglang.srt.plugins`): an engine with a copy of the weights of
its own (`SLIME_WEIGHTS_COPY`, a folder) has an endpoint `/pull_weights`.

`{"folder": ..., "version": n}` brings the copy to version n by the deltas in the trainer's folder,
and loads it. 409 means that the deltas do not lead there: the trainer then puts the whole version
into its folder. The engine's weights are as they were.
"""

import asyncio
import os
from typing import Any

VARIABLE = "SLIME_WEIGHTS_COPY"
"""The folder of the copy. Engines of one machine may share it."""

_SERVE = "sglang.srt.entrypoints.http_server._setup_and_run_http_server"


def register() -> None:
    """Entry point called by SGLang in each of its processes."""
    if not os.environ.get(VARIABLE):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    HookRegistry.register(_SERVE, add_endpoint, HookType.BEFORE)


def add_endpoint(*args: Any, **kwargs: Any) -> None:
    """Before the server of an engine starts."""
    from sglang.srt.entrypoints import http_server
    from sglang.srt.utils.auth import AuthLevel, auth_level

    endpoint = auth_level(AuthLevel.ADMIN_OPTIONAL)(pull_weights)
    http_server.app.add_route("/pull_weights", endpoint, methods=["POST"])


async def pull_weights(request: Any) -> Any:
    """See the module."""
    from sglang.srt.entrypoints import http_server
    from sglang.srt.managers.io_struct import UpdateWeightFromDiskReqInput

    from slime.weights.errors import WeightUpdateError
    from slime.weights.pulling import pull_version

    body = await request.json()
    copy = os.environ[VARIABLE]
    try:
        await asyncio.to_thread(pull_version, body["folder"], body["version"], copy)
    except (WeightUpdateError, OSError, ValueError) as error:
        answer = {"success": False, "message": str(error)}
        return http_server.ORJSONResponse(answer, status_code=409)
    manager = http_server.get_global_state().tokenizer_manager
    loaded = UpdateWeightFromDiskReqInput(model_path=copy, flush_cache=True)
    success, message, _ = await manager.update_weights_from_disk(loaded, request)
    answer = {"success": success, "message": message}
    return http_server.ORJSONResponse(answer, status_code=200 if success else 400)
