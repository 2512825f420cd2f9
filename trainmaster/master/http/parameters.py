"""Query parameters that several lists share. Enums are accepted by their full name, their bare word or their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import StringConstraints

from trainmaster.master.http import enums
from trainmaster.master.lifecycle.states import State
from trainmaster.master.services.errors import Invalid
from trainmaster.master.services.experiments.experiments import PHASES
from trainmaster.master.services.logs.log_store import LEVELS

Strings = Annotated[list[str], Query()]
Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]
# What ACTIVE experiments are shown as, beside the states in the database.
EXPERIMENT_STATES = (*State, *PHASES)
CHECKPOINT_STATES = ("ACTIVE", "COMPLETED", "ERROR", "DELETED", "PARTIALLY_DELETED")
METRIC_TYPES = ("TRAINING", "VALIDATION", "PROFILING")
UNSPECIFIED = "UNSPECIFIED"


def words(values: Sequence[str], prefix: str, known: Iterable[str], numbered: enums.Numbered = ()) -> list[str]:
    """Enum values as bare words: `STATE_ACTIVE`, `ACTIVE` and `1` are the same. Raises Invalid with the valid words."""
    numbers = {str(number): word for number, word in enumerate(numbered)}
    names = [numbers.get(value, value).removeprefix(prefix) for value in values]
    allowed = list(known)
    for value, word in zip(values, names, strict=True):
        if word not in (*allowed, UNSPECIFIED):
            raise Invalid(f"There is no {value!r} here; there are {', '.join(prefix + name for name in allowed)}.")
    return [word for word in names if word != UNSPECIFIED]


def sort_key(name: str, known: Mapping[str, Any], default: str, numbered: enums.Numbered) -> str:
    """`SORT_BY_START_TIME` as `start_time`. Raises Invalid with the valid words."""
    (key,) = words([name], "SORT_BY_", [key.upper() for key in known], numbered) or [default]
    return key.lower()


def _descending(orderBy: str = "") -> bool | None:
    """ORDER_BY_ASC or ORDER_BY_DESC; the list's own order when it is not given."""
    words_given = words([orderBy], "ORDER_BY_", ("ASC", "DESC"), enums.ORDER_BY) if orderBy else []
    return words_given[0] == "DESC" if words_given else None


def _experiment_states(states: Strings = []) -> list[str]:  # noqa: B006
    return words(states, "STATE_", EXPERIMENT_STATES, enums.EXPERIMENT_STATE)


def _trial_states(states: Strings = []) -> list[str]:  # noqa: B006
    return words(states, "STATE_", EXPERIMENT_STATES, enums.EXPERIMENT_STATE)


def _checkpoint_states(states: Strings = []) -> list[str]:  # noqa: B006
    return words(states, "STATE_", CHECKPOINT_STATES, enums.CHECKPOINT_STATE)


def _scheduled(states: Strings = []) -> bool | None:  # noqa: B006
    """Filter of jobs: those that hold resources, those that wait, or all."""
    names = words(states, "STATE_", ("QUEUED", "SCHEDULED", "SCHEDULED_BACKFILLED"), enums.JOB_STATE)
    kinds = {word != "QUEUED" for word in names}
    return kinds.pop() if len(kinds) == 1 else None


def _levels(levels: Strings = []) -> list[str]:  # noqa: B006
    return words(levels, "LOG_LEVEL_", LEVELS, enums.LOG_LEVEL)


Descending = Annotated[bool | None, Depends(_descending)]
ExperimentStates = Annotated[list[str], Depends(_experiment_states)]
TrialStates = Annotated[list[str], Depends(_trial_states)]
CheckpointStates = Annotated[list[str], Depends(_checkpoint_states)]
Scheduled = Annotated[bool | None, Depends(_scheduled)]
Levels = Annotated[list[str], Depends(_levels)]
