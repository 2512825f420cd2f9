"""Serves the API's documentation page at `/docs` without internet access: browsers in cluster networks seldom have it.

FastAPI's page loads Swagger UI from a CDN. The package fastapi-offline brings the same files; only they are used.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

FILES = "/docs/files"
_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def _policy(page: bytes) -> str:
    """Our files, and the scripts that stand in the page itself, by their hashes. Swagger UI writes styles and draws
    pictures of its own."""
    hashes = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _SCRIPT.findall(page))
    scripts = " ".join(f"'sha256-{word}'" for word in hashes)
    return (
        f"default-src 'none'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
    )


def install(app: FastAPI) -> None:
    """Serve `/docs` for an application that was made with `docs_url=None`."""

    @app.get("/docs", include_in_schema=False)
    def page(request: Request) -> HTMLResponse:
        root = request.scope.get("root_path", "")
        shown = get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title=f"{app.title} API",
            swagger_js_url=f"{root}{FILES}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{FILES}/swagger-ui.css",
            swagger_favicon_url=f"{root}{FILES}/favicon.png",
        )
        shown.headers["Content-Security-Policy"] = _policy(bytes(shown.body))
        return shown

    app.mount(FILES, StaticFiles(directory=str(files("fastapi_offline") / "static")), name="docs-files")
