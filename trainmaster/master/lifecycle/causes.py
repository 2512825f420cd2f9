"""Causes of failures of the user's code, each with whether another attempt can help. Where none is known, it can."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field


class Retry(enum.StrEnum):
    AGAIN = "again"
    NEVER = "never"


@dataclass(frozen=True)
class FailureCause:
    """Meaning of an exit code, or of the last exception that the code printed. `why`: the rest of the sentence about a
    trial that is not tried again."""

    name: str
    retry: Retry
    why: str
    exit_codes: frozenset[int] = field(default_factory=frozenset)
    exceptions: frozenset[str] = field(default_factory=frozenset)  # class names, without their modules


TOO_LITTLE_MEMORY = FailureCause(
    "too little memory", Retry.AGAIN, "", exceptions=frozenset({"MemoryError", "OutOfMemoryError"})
)
CAUSES = (
    FailureCause(
        "a storage that cannot work",
        Retry.NEVER,
        "the checkpoint storage cannot work as it is configured",
        exceptions=frozenset({"UnusableStorage"}),
    ),
    FailureCause(
        "code that Python cannot read",
        Retry.NEVER,
        "the code stays as it is",
        exceptions=frozenset({"SyntaxError", "IndentationError", "TabError"}),
    ),
    # Another node may have the program, the module, more memory, or a GPU that works.
    FailureCause(
        "a program that is missing, or that may not be run", Retry.AGAIN, "", exit_codes=frozenset({126, 127})
    ),
    FailureCause(
        "a module that is missing", Retry.AGAIN, "", exceptions=frozenset({"ModuleNotFoundError", "ImportError"})
    ),
    TOO_LITTLE_MEMORY,
)

_EXCEPTION = re.compile(r"(?:\w+\.)*(\w+)(?::|$)")


def cause_of(exit_code: int, evidence: str) -> FailureCause | None:
    """Return the cause in the table; None for all others. `evidence`: the last lines, with ` | ` between
    them, of which an exception is the last one."""
    match = _EXCEPTION.match(evidence.rpartition(" | ")[2])
    name = match[1] if match else ""
    return next((one for one in CAUSES if exit_code in one.exit_codes or name in one.exceptions), None)


def final_why(exit_code: int, evidence: str) -> str:
    """Why another attempt would fail in the same way; empty where it may not."""
    cause = cause_of(exit_code, evidence)
    return cause.why if cause is not None and cause.retry is Retry.NEVER else ""
