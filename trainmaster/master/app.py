"""Builds the FastAPI application: its routers, middleware, and what starts and stops with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import iscoroutinefunction

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from trainmaster.master.api import (
    agents,
    asked_trials,
    auth,
    bulk,
    checkpoints,
    cluster,
    commands,
    compare,
    custom_search,
    event_files,
    experiment_edits,
    experiment_search,
    experiment_table,
    experiment_views,
    experiments,
    files,
    generic_tasks,
    harness,
    home_view,
    job_reports,
    jobs,
    live,
    log_window,
    machine_view,
    master,
    model_registry,
    model_versions,
    node_data,
    pages,
    passwords,
    policies,
    projects,
    proxy,
    reporting,
    roles,
    rung_race,
    runs,
    search_plan,
    search_simulation,
    series,
    sessions,
    storage_usage,
    tasks,
    templates,
    trial_views,
    trials,
    unmanaged,
    updates,
    uploads,
    usage_view,
    users,
    webhooks,
    webui,
    workspaces,
)
from trainmaster.master.controller.controller import Controller
from trainmaster.master.db.engine import Listener
from trainmaster.master.db.request_context import worked
from trainmaster.master.http import (
    api_docs,
    error_envelope,
    guide,
    not_served,
)
from trainmaster.master.http.dependencies import ServedMaster
from trainmaster.master.http.session_guard import SessionGuard
from trainmaster.master.services.live_changes import CHANNEL as LIVE_CHANNEL
from trainmaster.master.services.store import CHANNEL

# In order of matching: a fixed word comes before a name in the same place.
PARTS = (
    job_reports,  # the most frequent calls match first
    webui,  # a page is some thirty files
    not_served,
    *(
        jobs,
        harness,
        reporting,
        auth,
        users,
        passwords,
        roles,
        master,
        cluster,
        agents,
        unmanaged,
        series,
        runs,
        trials,
        tasks,
        commands,
        generic_tasks,
        checkpoints,
        files,
    ),
    *(
        experiment_search,
        experiment_table,
        machine_view,
        experiment_views,
        compare,
        rung_race,
        asked_trials,
        custom_search,
        search_plan,
        search_simulation,
        trial_views,
        log_window,
        home_view,
        usage_view,
        experiment_edits,
        experiments,
        bulk,
        workspaces,
        projects,
    ),
    *(
        model_registry,
        model_versions,
        node_data,
        event_files,
        templates,
        webhooks,
        policies,
        updates,
        live,
        pages,
        uploads,
        storage_usage,
        sessions,
        proxy,
    ),
)


def _note_work(router: APIRouter) -> None:
    """Count the processor time of endpoints (`services.access.request_shares`)."""
    for route in router.routes:
        if isinstance(route, APIRoute) and not iscoroutinefunction(route.endpoint):
            call = route.dependant.call
            if call is not None and not hasattr(call, "__wrapped__"):  # by an earlier application of this process
                route.dependant.call = route.endpoint = worked(call)


def make_app(engine: Engine, master: ServedMaster) -> FastAPI:
    """Return the ASGI application; its lifespan runs the listener and the controller."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        wakeups = master.wakeups
        live_changes = master.store.live
        channels = {CHANNEL: wakeups.fire, LIVE_CHANNEL: live_changes.heard}
        listener = Listener(engine, channels, wakeups.fire_all)
        controller = Controller(master)
        listener.start()
        live_changes.start(wakeups.fire)
        controller.start()
        try:
            yield
        finally:
            wakeups.close()
            await proxy.close(app)
            await run_in_threadpool(controller.stop)
            await run_in_threadpool(live_changes.stop)
            await run_in_threadpool(listener.stop)

    app = FastAPI(
        title="trainmaster",
        version=master.settings.version,
        description="Determined 0.38.1's `/api/v1`, and our own additions under `/api/x1`. People read the "
        "[guide](docs/guide/).",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=error_envelope.RESPONSES,
        strict_content_type=False,  # Determined's clients send JSON without its Content-Type
    )
    app.state.master = master
    app.state.guard = SessionGuard(master)
    app.state.pages = live.Pages(master, app.state.guard)
    error_envelope.install(app)
    api_docs.install(app)
    guide.install(app)
    for part in PARTS:
        _note_work(part.router)
        app.include_router(part.router)
    return app
