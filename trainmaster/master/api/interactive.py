"""Redirects browsers that Determined's client opens: `det notebook open`, `det tensorboard open`."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter
from fastapi.responses import RedirectResponse

from trainmaster.master.http.redirects import redirect

router = APIRouter(tags=["proxy"])


@router.get("/det/interactive/{task_id}/{rest:path}", response_class=RedirectResponse, status_code=307)
async def interactive(task_id: str, rest: str) -> RedirectResponse:
    """Redirects to the task's own pages. The rest of the path holds its kind, name and pool, which Determined's page
    shows meanwhile."""
    del rest
    return redirect(f"/proxy/{quote(task_id, safe='')}/", 307)
