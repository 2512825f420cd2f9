"""What can go wrong between a client and a master.

ClientError
|-- FileFault           a file of the user's is wrong; the message begins with its name and line
|-- MasterUnreachable   no answer at all, or that it is not ready
|   `-- NotTrusted      nothing was said to it: its certificate is not one to believe
`-- APIError            the master answered with an error; `status` is HTTP's
    |-- NotLoggedIn     401
    |-- NotAllowed      403
    `-- NoSuchThing     404
"""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """The message is a sentence for the user."""


class FileFault(ClientError):
    pass


class MasterUnreachable(ClientError):
    pass


class NotTrusted(MasterUnreachable):
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
    """The error that a response's body describes: Determined's envelope, a plain `message`, or text."""
    message, details = "", None
    if isinstance(body, dict):
        error = body.get("error")
        if isinstance(error, dict):
            message, details = str(error.get("error") or error.get("reason") or ""), error.get("details")
        message = message or str(body.get("message") or "")
    elif isinstance(body, str) and not body.lstrip().startswith("<"):  # a proxy's HTML page says nothing
        message = body.strip()
    return _BY_STATUS.get(status, APIError)(status, message or f"The master answered with status {status}.", details)
