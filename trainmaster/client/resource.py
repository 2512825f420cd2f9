"""Base class of the client's groups of calls: one shared transport, and lists read page by page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from trainmaster.client.transport import Transport

Json = dict[str, Any]
PAGE = 200  # entries of a list fetched at once


class Resource:
    """A group of calls on one subject.

    Every method may raise MasterUnreachable (the master does not answer, or is not ready) and APIError (it refuses the
    call); methods name only what is special. Where one returns an iterator, errors are raised while iterating.
    """

    def __init__(self, transport: Transport) -> None:
        self._http = transport

    def _get(self, path: str, **query: Any) -> Json:
        return self._http.request("GET", f"/api/v1/{path}", query=query)

    def _post(self, path: str, body: Any = None, *, retry: bool = True) -> Json:
        """`retry=False` is for calls that must not be made twice."""
        return self._http.request("POST", f"/api/v1/{path}", body={} if body is None else body, retry=retry)

    def _patch(self, path: str, body: Any) -> Json:
        return self._http.request("PATCH", f"/api/v1/{path}", body=body)

    def _put(self, path: str, body: Any) -> Json:
        return self._http.request("PUT", f"/api/v1/{path}", body=body)

    def _delete(self, path: str, body: Any = None) -> Json:
        return self._http.request("DELETE", f"/api/v1/{path}", body=body)

    def _pages(
        self, path: str, key: str, query: Mapping[str, Any], limit: int, offset: int, everything: bool
    ) -> list[Any]:
        rows: list[Any] = []
        while True:
            answer = self._http.request("GET", path, query={**query, "limit": limit, "offset": offset})
            rows += answer[key]
            page = answer["pagination"]
            if not everything or page["endIndex"] >= page["total"]:
                return rows
            offset = int(page["endIndex"])

    def _all(self, path: str, key: str, **query: Any) -> list[Any]:
        """Every entry of a list."""
        return self._pages(f"/api/v1/{path}", key, query, PAGE, 0, True)


def word(name: str) -> str:
    """Quote a name as one segment of a path."""
    return quote(name, safe="")


def given(**fields: Any) -> Json:
    """Return the fields that are not None: a field that is not sent stays as it is."""
    return {key: value for key, value in fields.items() if value is not None}
