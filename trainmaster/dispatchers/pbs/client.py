"""PBS through its commands: the only module of this dispatcher that does I/O with the cluster."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterable, Sequence

from trainmaster.dispatchers.base import DispatcherError, Transient
from trainmaster.dispatchers.pbs import commands, failures, formats, parse
from trainmaster.dispatchers.pbs.config import PbsOptions
from trainmaster.dispatchers.pbs.formats import Record
from trainmaster.dispatchers.shell import Outcome, Shell
from trainmaster.dispatchers.slurm.client import TokenBucket

log = logging.getLogger(__name__)


class PbsClient:
    """Each method is one question or order. They raise only the dispatcher errors."""

    def __init__(self, options: PbsOptions, shell: Shell | None = None) -> None:
        self._shell = shell or Shell(options.client_environment, path=f"{options.job_path}:{options.pbs_bin}")
        self._options = options
        self._programs = options.programs()
        self._bucket = TokenBucket(options.submits_per_second, options.submit_burst)
        self._odd: set[str] = set()

    def submit(self, job: commands.Submission) -> str:
        """The job's id. Raises Rejected, Transient, Ambiguous, Unreachable."""
        self._bucket.wait()
        outcome = self._shell.run(commands.submit(self._programs, job), deadline=self._options.submit_deadline)
        found = parse.submitted_id(outcome.stdout)
        # An id on standard output is proof, even when the command was ended afterwards.
        if found is None:
            raise failures.submit_failure(outcome, job.token)
        return found

    def jobs(self) -> list[parse.Job]:
        """All jobs that have not ended, everybody's. Raises Unreachable, Transient."""
        mark = _mark()
        return self._jobs(self._ask(commands.jobs(self._programs, self._options.query_format, mark)), mark)

    def ended_ids(self) -> list[str] | None:
        """Ids of the jobs that ended lately, everybody's; None when the server keeps no history."""
        since = time.time() - self._options.ended_listed_for
        outcome = self._run(commands.ended_since(self._programs, since))
        if failures.no_history(outcome):
            return None
        self._raise(outcome)
        return [line.strip() for line in outcome.stdout.splitlines() if parse.JOB_ID.fullmatch(line.strip())]

    def ended(self, job_ids: Sequence[str]) -> list[parse.Job]:
        """All there is on ended jobs; one that is not known any more is left out."""
        found = []
        mark = _mark()
        for argv in commands.ended(self._programs, self._options.query_format, mark, job_ids):
            outcome = self._run(argv)
            # The status is bad as soon as one of them is unknown, though the others are printed.
            if not failures.only_about_ended_jobs(outcome):
                self._raise(outcome)
            found += self._jobs(outcome, mark)
        return found

    def one(self, job_id: str) -> parse.Job | None:
        """What PBS remembers of a job; None when it has forgotten it."""
        for history in (True, False):
            mark = _mark()
            form = self._options.query_format
            outcome = self._run(commands.one(self._programs, form, mark, job_id, history=history))
            if failures.no_history(outcome):
                continue
            if not failures.only_about_ended_jobs(outcome):
                self._raise(outcome)
            # Servers of a site may have several names: the number is what counts.
            number = parse.short_id(job_id)
            return next((job for job in self._jobs(outcome, mark) if parse.short_id(job.job_id) == number), None)
        return None

    def queues(self) -> list[Record]:
        return self._records(commands.queues)

    def nodes(self) -> list[Record]:
        return self._records(commands.nodes)

    def server(self) -> Record | None:
        """The server's attributes."""
        return next(iter(self._records(commands.server)), None)

    def cancel(self, job_ids: Sequence[str]) -> None:
        self._order(commands.cancel(self._programs, job_ids))

    def signal(self, job_ids: Sequence[str], name: str) -> None:
        self._order(commands.signal(self._programs, job_ids, name))

    def version(self) -> str:
        """The whole answer of `qstat --version`: PBS's is "pbs_version = 23.06.06"; look-alikes say something else."""
        outcome = self._run(commands.version(self._programs))
        if outcome.not_found or outcome.timed_out:
            self._raise(outcome)
        return f"{outcome.stdout}\n{outcome.stderr}".strip()

    def _records(self, build: commands.Listing) -> list[Record]:
        mark = _mark()
        outcome = self._ask(build(self._programs, self._options.query_format, mark))
        found, odd = formats.read(self._options.query_format, outcome.stdout, mark)
        self._note(odd)
        return found

    def _jobs(self, outcome: Outcome, mark: str) -> list[parse.Job]:
        records, odd = formats.read(self._options.query_format, outcome.stdout, mark)
        jobs = [parse.job(record, self._options.gpu_resource) for record in records]
        odd += [record.name for record, job in zip(records, jobs, strict=True) if job is None]
        self._note(odd)
        if odd and not records:
            raise Transient(f"qstat printed nothing that is a list of jobs: {odd[0]!r}.")
        return [job for job in jobs if job is not None]

    def _run(self, argv: list[str]) -> Outcome:
        return self._shell.run(argv, deadline=self._options.query_deadline)

    def _ask(self, argv: list[str]) -> Outcome:
        outcome = self._run(argv)
        self._raise(outcome)
        return outcome

    def _order(self, chunks: Iterable[list[str]]) -> None:
        """Run every chunk, even when an earlier one fails: one bad job must not keep the others alive."""
        first: DispatcherError | None = None
        for argv in chunks:
            outcome = self._run(argv)
            if failures.only_about_ended_jobs(outcome):
                continue
            first = first or failures.query_failure(outcome)
        if first:
            raise first

    def _raise(self, outcome: Outcome) -> None:
        error = failures.query_failure(outcome)
        if error:
            raise error

    def _note(self, odd: Iterable[str]) -> None:
        """Log an odd line once."""
        for line in odd:
            if line not in self._odd and len(self._odd) < 1000:
                self._odd.add(line)
                log.warning("PBS printed a line that is not understood: %r", line)


def _mark() -> str:
    """A separator that nobody can have put into a job's attributes."""
    return f"\x1f{secrets.token_hex(8)}\x1f"
