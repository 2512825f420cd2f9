"""Serves the documentation's site at `/docs/guide`: files that `scripts/docs` builds into the package."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

from trainmaster.master.http.redirects import redirect_below
from trainmaster.master.services.errors import NotFound

FOLDER = Path(str(files("trainmaster"))) / "guide"
PATH = "/docs/guide"
# The site has no inline scripts and styles (`scripts/parts/docs_site.py`); its search is a worker and an index.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
    ),
    "Cache-Control": "no-cache",
}


class Guide(StaticFiles):
    """The site's files, with their ETags; no path leads out of the folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        super().__init__(directory=folder, check_dir=False)
        self._folder = folder

    async def check_config(self) -> None:
        if not self._folder.is_dir():
            raise NotFound("The documentation's site has not been built. Run `bash scripts/docs` in the checkout.")

    def get_path(self, scope: Scope) -> str:
        path = super().get_path(scope)
        return "index.html" if path == os.curdir else path

    def file_response(
        self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


def install(app: FastAPI) -> None:
    """Serve the site of the package."""

    @app.get(PATH, include_in_schema=False)
    async def start() -> RedirectResponse:
        return redirect_below("guide/")

    app.mount(PATH, Guide(), name="guide")
