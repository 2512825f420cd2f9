"""Redirections of browsers, none of which leads to another host by what a request says."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.responses import RedirectResponse

from trainmaster.config.networks import Origin

HOME = "/ui/"
LONGEST = 8192  # characters of an address


def inside(to: str) -> str:
    """`to` if it is a path of the master's, else the start page. Decoded or not, no browser reads a host in it."""
    fine = to.isascii() and to.isprintable() and len(to) < LONGEST
    return to if fine and _is_path(to) and _is_path(unquote(to.partition("?")[0])) else HOME


def _is_path(to: str) -> bool:
    return to.startswith("/") and not to.startswith("//") and "\\" not in to


def redirect(to: str, status: int = 303) -> RedirectResponse:
    """To a path of the master's."""
    return RedirectResponse(inside(to), status)


def redirect_below(to: str) -> RedirectResponse:
    """To a fixed address below the requested one, under whatever prefix a portal has put it."""
    return RedirectResponse(to)


def redirect_to_services(origin: Origin, to: str) -> RedirectResponse:
    """To a path of the services' own origin."""
    return RedirectResponse(f"{origin}{inside(to)}", 303)
