"""The errors that a dispatcher may raise; anything else is a bug and is logged as one.

DispatcherError
|-- Rejected      the user's or the site's fault; final; the message is for the user
|-- Transient     nothing happened; the same call may work later
|-- Ambiguous     it may have happened; search for the token before trying again
`-- Unreachable   the cluster does not answer; change no state
"""

from __future__ import annotations


class DispatcherError(Exception):
    """Base of all errors that a dispatcher may raise. `token` names the job, if the error is about one."""

    def __init__(self, message: str, *, token: str | None = None) -> None:
        super().__init__(message)
        self.token = token


class Rejected(DispatcherError):
    """The scheduler or the dispatcher refuses the job for good; the message says why and how to fix it."""


class Transient(DispatcherError):
    """Nothing happened, and the same call may work later (a limit, a busy controller that answered so)."""


class Ambiguous(DispatcherError):
    """The call may have had its effect (a timeout, a lost connection). Search for the token."""


class Unreachable(DispatcherError):
    """The cluster does not answer at all. No job's state may change because of it."""


def sentence(error: Exception) -> str:
    """Return the message of an error as a sentence: with a capital letter and a full stop."""
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
