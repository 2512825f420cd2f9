"""What a service may refuse, and how the API says it.

ServiceError
|-- Invalid          the request cannot be fulfilled as written     400
|-- Unauthenticated  nobody, or nobody we know                      401
|-- Forbidden        somebody who may not                           403
|-- NotFound         there is no such thing                         404
|-- Conflict         it does not fit the state of things            409
|-- NotServed        Determined has it, this master has not         501
|-- Unavailable      something that must be asked does not answer   503
|-- TooLarge         more than the master takes                     413
|-- TooSlow          it took longer than a request may              408
`-- Busy             its sender has too much under way              429
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class ServiceError(Exception):
    """`message` is a sentence for the user; `details` is for programs."""

    def __init__(self, message: str, details: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.details = tuple(details)


class Invalid(ServiceError):
    pass


class Unauthenticated(ServiceError):
    pass


class Forbidden(ServiceError):
    pass


class NotFound(ServiceError):
    pass


class Conflict(ServiceError):
    pass


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
