"""What a service may refuse, and how the API says it.

ServiceError
|-- Invalid          the request cannot be fulfilled as written     400
|-- Unauthenticated  nobody, or nobody we know                      401
|   `-- BadCredentials   who logs in with a wrong name or password    401
|-- Forbidden        somebody who may not                           403
|   |-- NotActive        whose account is switched off              403
|   `-- AccessDenied     whom no role allows it                     403
|-- NotFound         there is no such thing                         404
|-- Conflict         it does not fit the state of things            409
|   `-- AlreadyExists    something has that name                    409
|-- NotServed        Determined has it, this master has not         501
|-- Unavailable      something that must be asked does not answer   503
|-- TooLarge         more than the master takes                     413
|-- TooSlow          it took longer than a request may              408
`-- Busy             its sender has too much under way              429

Scripts that were written for Determined look for some of its words in a message: a `phrase` that a message does not
hold goes before it.
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
    pass


class TooSlow(ServiceError):
    pass


class Busy(ServiceError):
    pass
