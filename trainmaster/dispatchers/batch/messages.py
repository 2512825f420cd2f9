"""Maps failed commands of batch schedulers to dispatcher errors. Each scheduler's package has its own messages."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from re import Pattern

from trainmaster.dispatchers.base import Ambiguous, DispatcherError, Transient, Unreachable
from trainmaster.dispatchers.cluster.command_runner import CommandResult


@dataclass(frozen=True)
class FailureWords:
    """Error messages of one scheduler's commands, as patterns for standard error."""

    scheduler: str  # its name in sentences
    no_cluster: Pattern[str]  # nothing reached a controller
    unknown_outcome: Pattern[str]  # the request may have arrived and been acted on
    about_ended_jobs: Pattern[str]  # a line about a job that has ended or is unknown: there is nothing to do
    message: Callable[[str], str]  # the essential part of standard error

    def unanswered(self, outcome: CommandResult, token: str) -> DispatcherError | None:
        """Return the error of a submit command that did not start, or did not end in time; None otherwise."""
        program = _program(outcome)
        if outcome.not_found:
            text = f"{self.scheduler}'s {program} cannot be run here: {outcome.stderr.strip()}"
            return Unreachable(text, token=token)
        if outcome.timed_out:
            text = f"{program} gave no answer in {outcome.seconds:.0f} s and was ended; the job may have been accepted."
            return Ambiguous(text, token=token)
        return None

    def query_failure(self, outcome: CommandResult) -> DispatcherError | None:
        """Return the error of a command that can be repeated; None when it succeeded. Standard error counts even when
        the status is 0, because some commands end with 0 after a failure."""
        program = _program(outcome)
        if outcome.not_found:
            return Unreachable(f"{self.scheduler}'s {program} cannot be run here: {outcome.stderr.strip()}")
        if outcome.timed_out:
            return Unreachable(f"{program} gave no answer in {outcome.seconds:.0f} s.")
        if self.no_cluster.search(outcome.stderr) or self.unknown_outcome.search(outcome.stderr):
            return Unreachable(f"{self.scheduler} cannot be asked: {self.message(outcome.stderr)}.")
        if outcome.returncode == 0:
            return None
        return Transient(f"{program} failed with status {outcome.returncode}: {self.message(outcome.stderr)}.")

    def only_about_ended_jobs(self, outcome: CommandResult) -> bool:
        """Whether all error messages are about jobs that have ended, are unknown, or do not run now."""
        lines = [line for line in outcome.stderr.splitlines() if line.strip()]
        # A site's wrapper may print more: a line without the command's name is not one of its messages.
        own = [line for line in lines if line.startswith(f"{_program(outcome)}:")] or lines
        return bool(own) and not outcome.timed_out and all(map(self.about_ended_jobs.search, own))


def _program(outcome: CommandResult) -> str:
    """Return the command itself, without `env NAME=value`."""
    words = [word.rpartition("/")[2] for word in outcome.argv if "=" not in word]
    return next((word for word in words if word != "env"), outcome.argv[0])


def named_signal(number: int) -> str:
    """Return, for example, "signal 9 (SIGKILL)"; only the number for numbers that schedulers have added."""
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
