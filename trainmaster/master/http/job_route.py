"""The FastAPI route class of the calls that all jobs make frequently."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool

from trainmaster.master.http.body_limit import OF_STRANGERS
from trainmaster.master.http.dependencies import ServedMaster, caller_outside_of_threads
from trainmaster.master.services.access.identity import Caller


class JobRoute(APIRoute):
    """Calls an endpoint without FastAPI's resolution of dependencies, which would double what such a call costs.

    The endpoint is written as any other, but has exactly the parameters `allocation_id`, `body`, `request`, `services`
    and `caller`, is a coroutine and returns a Response. Callers and permissions are checked as everywhere; the body is
    read as JSON by pydantic, whatever its Content-Type, and a large one in a thread. Reports take turns
    (`report_turns`), before their bodies are parsed.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        model: type[BaseModel] = get_type_hints(self.endpoint)["body"]
        in_turns = self.path.endswith("/reports")

        async def handle(request: Request) -> Response:
            master: ServedMaster = request.app.state.master
            raw = await request.body()  # first, as FastAPI does: a stranger's large one is refused as it comes
            caller = await caller_outside_of_threads(request, master)
            if not in_turns or caller.allocation_id is None:
                return await work(request, master, caller, raw)
            async with master.report_turns.turn(caller.allocation_id, len(raw)):
                return await work(request, master, caller, raw)

        async def work(request: Request, master: ServedMaster, caller: Caller, raw: bytes) -> Response:
            try:
                if len(raw) > OF_STRANGERS:
                    body = await run_in_threadpool(model.model_validate_json, raw)
                else:
                    body = model.model_validate_json(raw)
            except ValidationError as error:
                faults = error.errors(include_url=False, include_context=False)
                raise RequestValidationError([{**f, "loc": ("body", *f["loc"])} for f in faults]) from None
            given: Response = await self.endpoint(
                allocation_id=request.path_params["allocation_id"],
                body=body,
                request=request,
                master=master,
                caller=caller,
            )
            return given

        return handle
