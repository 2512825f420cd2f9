"""The errors of services, and the HTTP status of each.

ServiceError
|-- Invalid          the request cannot be fulfilled as written     400
|-- Unauthenticated  the caller is not logged in or unknown         401
|   `-- BadCredentials   a log-in with a wrong name or password     401
|-- Forbidden        the caller may not do this                     403
|   |-- NotActive        the caller's account is deactivated        403
|   `-- AccessDenied     none of the caller's roles allows it       403
|-- NotFound         there is no such entity                        404
|-- Conflict         the entity's present state does not allow it   409
|   `-- AlreadyExists    the name is taken                          409
|-- NotServed        Determined has it, this master has not         501
|-- Unavailable      a system that must be asked does not answer    503
|-- TooLarge         the request is larger than its limit           413
|-- TooSlow          it took longer than a request may              408
`-- Busy             its sender has too many requests under way     429

Scripts that were written for Determined search messages for some of its words: an error's `phrase` is put before a
message that does not contain it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ServiceError(Exception):
    """`message` is a sentence for the user; `details` is for programs."""

    phrase = ""

    def __init__(self, message: str, details: Sequence[Any] = ()) -> None:
        if self.phrase and self.phrase not in message:
            message = f"{self.phrase}: {message}"
        super().__init__(message)
        self.message = message
        self.details = tuple(details)


class Invalid(ServiceError):
    pass


class Unauthenticated(ServiceError):
    pass


class BadCredentials(Unauthenticated):
    phrase = "invalid credentials"


class Forbidden(ServiceError):
    pass


class NotActive(Forbidden):
    phrase = "user is not active"


class AccessDenied(Forbidden):
    phrase = "access denied"


class NotFound(ServiceError):
    phrase = "not found"


class Conflict(ServiceError):
    pass


class AlreadyExists(Conflict):
    phrase = "already exists"


class TooLarge(ServiceError):
    pass


class NotServed(ServiceError):
    pass


class Unavailable(ServiceError):
    """`retry_after`: in how many seconds it is worth to ask again; None where nobody knows."""

    def __init__(self, message: str, details: Sequence[Any] = (), *, retry_after: float | None = None) -> None:
        super().__init__(message, details)
        self.retry_after = retry_after


class TooSlow(ServiceError):
    pass


class Disconnected(TooSlow):
    """The client has disconnected; nobody reads this."""


class Busy(ServiceError):
    pass
