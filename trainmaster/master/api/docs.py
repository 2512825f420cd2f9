"""The API's own page at `/docs`, whole without the internet: cluster networks seldom let a browser out.

FastAPI's page loads Swagger UI from a CDN. The package fastapi-offline brings the same files; only they are used.
"""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

FILES = "/docs/files"


def install(app: FastAPI) -> None:
    """Serve `/docs` for an application that was made with `docs_url=None`."""

    @app.get("/docs", include_in_schema=False)
    def page(request: Request) -> HTMLResponse:
        root = request.scope.get("root_path", "")
        return get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=f"{app.title} API",
            swagger_js_url=f"{root}{FILES}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{FILES}/swagger-ui.css",
            swagger_favicon_url=f"{root}{FILES}/favicon.png",
        )

    app.mount(FILES, StaticFiles(directory=str(files("fastapi_offline") / "static")), name="docs-files")
