"""Runs a scheduler's commands with the right account and rate, and turns their failures into dispatcher errors."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Sequence

from trainmaster.dispatchers.base import DispatcherError, JobRef
from trainmaster.dispatchers.batch.messages import FailureWords
from trainmaster.dispatchers.batch.options import BatchOptions
from trainmaster.dispatchers.cluster.access.access import Access
from trainmaster.dispatchers.cluster.command_runner import CommandResult
from trainmaster.dispatchers.cluster.rate_limit import TokenBucket

log = logging.getLogger(__name__)

_NOTED = 1000  # unparsed lines that are remembered, so that each is logged once


class BatchClient:
    """Runs commands and raises only the dispatcher errors. A scheduler's own client adds a method for each query."""

    def __init__(self, options: BatchOptions, access: Access, words: FailureWords) -> None:
        self._access = access
        self._shell = access.shell()
        self._deadline = options.query_deadline
        self._submit_deadline = options.submit_deadline
        self._bucket = TokenBucket(options.submits_per_second, options.submit_burst)
        self._words = words
        self._odd: set[str] = set()

    def _submit(self, argv: list[str], token: str, user: str | None, stdin: str = "") -> CommandResult:
        """Run the submit command as `user`, within the rate limit. Raises if the command cannot be reached, not for its
        own failure. A job id that it printed is proof of the job, even if the command was killed afterwards."""
        self._bucket.wait()
        outcome = self._access.shell(user).run(argv, stdin=stdin, deadline=self._submit_deadline)
        if error := outcome.way_failure(token, repeatable=False):
            raise error
        return outcome

    def _run(self, argv: list[str], deadline: float | None = None) -> CommandResult:
        """Run a command. Raises if it cannot be reached, not for its own failure."""
        outcome = self._shell.run(argv, deadline=deadline or self._deadline)
        if error := outcome.way_failure():
            raise error
        return outcome

    def _ask(self, argv: list[str]) -> CommandResult:
        """Run a query. Raises for its own failure too."""
        outcome = self._run(argv)
        self._check(outcome)
        return outcome

    def _check(self, outcome: CommandResult) -> None:
        if error := self._words.query_failure(outcome):
            raise error

    def _order(self, refs: Sequence[JobRef], command: Callable[[Sequence[str]], Iterable[list[str]]]) -> None:
        """Run `command` for all jobs in chunks, each job as its user. Goes on when one chunk fails: one bad job must
        not keep the others alive."""
        first: DispatcherError | None = None
        for user, theirs in self._access.by_user(refs).items():
            shell = self._access.shell(user)
            for argv in command([ref.job_id for ref in theirs]):
                outcome = shell.run(argv, deadline=self._deadline)
                error = outcome.way_failure()
                if error is None and not self._words.only_about_ended_jobs(outcome):
                    error = self._words.query_failure(outcome)
                first = first or error
        if first:
            raise first

    def _note(self, program: str, odd: Iterable[str]) -> None:
        """Log each unparsed line once."""
        for line in odd:
            if line not in self._odd and len(self._odd) < _NOTED:
                self._odd.add(line)
                log.warning("%s printed a line that cannot be parsed: %r", program, line)


def new_mark() -> str:
    """Return a random separator, which no user can have put into a job's name or attributes."""
    return f"\x1f{secrets.token_hex(8)}\x1f"
