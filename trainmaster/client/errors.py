"""What can go wrong between a client and a master.

ClientError
|-- MasterUnreachable   no answer at all
`-- APIError            the master answered with an error; `status` is HTTP's
    |-- NotLoggedIn     401
    |-- NotAllowed      403
    `-- NoSuchThing     404
"""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """The message is a sentence for the user."""


class MasterUnreachable(ClientError):
    pass


class APIError(ClientError):
    def __init__(self, status: int, message: str, details: list[Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.details = details or []


class NotLoggedIn(APIError):
    pass


class NotAllowed(APIError):
    pass


class NoSuchThing(APIError):
    pass


_BY_STATUS = {401: NotLoggedIn, 403: NotAllowed, 404: NoSuchThing}


def api_error(status: int, body: Any) -> APIError:
    """The error that a response's body describes."""
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        message, details = str(error.get("error") or error.get("reason") or ""), error.get("details")
    else:
        message, details = (
            str((body or {}).get("message", "") if isinstance(body, dict) else body or ""),
            None,
        )
    return _BY_STATUS.get(status, APIError)(status, message or f"The master answered with status {status}.", details)
