"""The states of experiments, trials and allocations, and their allowed transitions (Determined 0.38.1's tables,
less its dead ends: a stopping experiment can always be killed)."""

from __future__ import annotations

import enum


class State(enum.StrEnum):
    """Experiments and trials."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"
    DELETE_FAILED = "DELETE_FAILED"
    DELETED = "DELETED"

    @property
    def terminal(self) -> bool:
        return self in (State.COMPLETED, State.CANCELED, State.ERROR, State.DELETED)

    @property
    def stopping(self) -> bool:
        return self.value.startswith("STOPPING_")

    @property
    def ended_as(self) -> State:
        """The terminal state a stopping one leads to."""
        return _ENDED_AS[self]


_ENDED_AS = {
    State.STOPPING_COMPLETED: State.COMPLETED,
    State.STOPPING_CANCELED: State.CANCELED,
    State.STOPPING_KILLED: State.CANCELED,
    State.STOPPING_ERROR: State.ERROR,
}

# Precedence of states: a stop may only be replaced by a stronger one.
SEVERITY = {
    State.STOPPING_COMPLETED: 1,
    State.STOPPING_CANCELED: 2,
    State.STOPPING_KILLED: 3,
    State.STOPPING_ERROR: 4,
}


class AllocationState(enum.StrEnum):
    """In order; an allocation never moves back."""

    PENDING = "PENDING"  # a row, and perhaps a submit under way
    ASSIGNED = "ASSIGNED"  # in the scheduler's queue
    STARTING = "STARTING"  # the scheduler gave it nodes
    RUNNING = "RUNNING"  # the runtime of every node has joined
    TERMINATING = "TERMINATING"  # asked to leave
    TERMINATED = "TERMINATED"

    @property
    def rank(self) -> int:
        return list(AllocationState).index(self)


class SubmissionState(enum.StrEnum):
    """The progress of submitting the job to the scheduler."""

    NEW = "NEW"
    SUBMITTING = "SUBMITTING"  # a call is under way, or was when the master died
    UNKNOWN = "UNKNOWN"  # it may have happened: look for the token
    SUBMITTED = "SUBMITTED"


class OutcomeKind(enum.StrEnum):
    """How an attempt ended, as its trial distinguishes it."""

    COMPLETED = "completed"  # ended with status 0 by itself
    PREEMPTED = "preempted"  # preempted: saved its work and left; or its scheduler took the resources
    STOPPED = "stopped"  # ended by us without having saved anything
    FAILED = "failed"  # the user's code ended with an error
    OUT_OF_MEMORY = "out of memory"
    WALLTIME = "walltime"  # the time limit: it left in time or was killed
    CANCELLED = "cancelled outside"  # a person removed the job from the scheduler's queue
    INFRASTRUCTURE = "infrastructure"  # node failure, launch failure, lost job: infrastructure
    REJECTED = "rejected"  # the scheduler refuses the job for good
