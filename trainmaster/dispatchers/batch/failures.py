"""How commands of every batch scheduler fail alike. What a scheduler says when it fails is in its own package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from re import Pattern

from trainmaster.dispatchers.base import Ambiguous, DispatcherError, Transient, Unreachable
from trainmaster.dispatchers.command_runner import CommandResult


@dataclass(frozen=True)
class FailureWords:
    """The words of one scheduler's commands, searched for in standard error."""

    scheduler: str  # its name in sentences
    no_cluster: Pattern[str]  # nothing reached a controller
    unknown_outcome: Pattern[str]  # the request may have arrived and been acted on
    about_ended_jobs: Pattern[str]  # of a line about a job that has ended or is not known: nothing is left to do
    message: Callable[[str], str]  # what standard error comes down to

    def unanswered(self, outcome: CommandResult, token: str) -> DispatcherError | None:
        """The error of a submit command that did not end by itself; None when it did."""
        program = _program(outcome)
        if outcome.not_found:
            text = f"{self.scheduler}'s {program} cannot be run here: {outcome.stderr.strip()}"
            return Unreachable(text, token=token)
        if outcome.timed_out:
            text = f"{program} gave no answer in {outcome.seconds:.0f} s and was ended; the job may have been accepted."
            return Ambiguous(text, token=token)
        return None

    def query_failure(self, outcome: CommandResult) -> DispatcherError | None:
        """The error of a command that asks or orders something repeatable; None when it went well. Standard error is
        read even when the status is 0: not every command's status tells."""
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
        """True when all that a command complains of is that jobs have ended, are unknown, or do not run now."""
        lines = [line for line in outcome.stderr.splitlines() if line.strip()]
        # A site's wrapper may print more; what does not bear the command's name is none of its complaints.
        own = [line for line in lines if line.startswith(f"{_program(outcome)}:")] or lines
        return bool(own) and not outcome.timed_out and all(map(self.about_ended_jobs.search, own))


def _program(outcome: CommandResult) -> str:
    """The command itself, behind `env NAME=value`."""
    words = [word.rpartition("/")[2] for word in outcome.argv if "=" not in word]
    return next((word for word in words if word != "env"), outcome.argv[0])
