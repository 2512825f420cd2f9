"""Errors of the client. Each message is a sentence for the user.

ClientError
|-- FileFault           a file of the user's is wrong; the message begins with its name and line
|-- MasterUnreachable   the master does not answer, or answers that it is not ready
|   |-- HostNotFound    no machine of that name is known
|   `-- NotTrusted      nothing was sent: the master's certificate is not trusted
`-- APIError            the master answered with an error; `status` is the HTTP status
    |-- NotLoggedIn     401
    |-- NotAllowed      403
    `-- NoSuchThing     404
"""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """Any error of the client; its text is a sentence for the user."""


class FileFault(ClientError):
    """A file of the user's is missing, unreadable or wrong."""


class MasterUnreachable(ClientError):
    """The master does not answer, or is not ready.

    Attributes:
        what: The first sentence of the message: what is wrong, without what to do.
    """

    @property
    def what(self) -> str:
        text, stop, _ = str(self).partition(". ")
        return text + stop.strip()


class HostNotFound(MasterUnreachable):
    """The name in the master's address is not known, now or at all."""


class NotTrusted(MasterUnreachable):
    """The master's certificate is not trusted, so nothing was sent to it."""


class APIError(ClientError):
    """The master refused a call.

    Attributes:
        status: The HTTP status.
        details: What the master adds for programs, such as one entry for each wrong key of a configuration.
    """

    def __init__(self, status: int, message: str, details: list[Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.details = details or []


class NotLoggedIn(APIError):
    """The call has no valid session, or the password is wrong."""


class NotAllowed(APIError):
    """The user lacks the permission."""


class NoSuchThing(APIError):
    """What the call names does not exist, or the user may not see it."""


_BY_STATUS = {401: NotLoggedIn, 403: NotAllowed, 404: NoSuchThing}


def api_error(status: int, body: Any) -> APIError:
    """Return the error that a response's body describes: Determined's envelope, a plain `message`, or text."""
    message, details = "", None
    if isinstance(body, dict):
        error = body.get("error")
        if isinstance(error, dict):
            message, details = str(error.get("error") or error.get("reason") or ""), error.get("details")
        message = message or str(body.get("message") or "")
    elif isinstance(body, str) and not body.lstrip().startswith("<"):  # not the HTML page of a proxy
        message = body.strip()
    return _BY_STATUS.get(status, APIError)(status, message or f"The master answered with status {status}.", details)
