"""Runs PBS's commands and parses their output; the only module of this dispatcher that talks to the cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence

from trainmaster.dispatchers.base import JobRef, Transient
from trainmaster.dispatchers.batch.client import BatchClient, new_mark
from trainmaster.dispatchers.cluster.access.access import Access
from trainmaster.dispatchers.cluster.command_runner import CommandResult
from trainmaster.dispatchers.pbs import commands, messages, parse
from trainmaster.dispatchers.pbs.options import PbsOptions
from trainmaster.dispatchers.pbs.parse import PrintedRecord


class PbsClient(BatchClient):
    """One method per query or order. They raise only dispatcher errors."""

    def __init__(self, options: PbsOptions, access: Access) -> None:
        super().__init__(options, access, messages.WORDS)
        self._options = options
        self._programs = options.programs()
        # Unparsed lines that came together with records: a site's banner. An answer of only these is an empty list.
        self._noise: set[str] = set()

    def submit(self, job: commands.QsubRequest, user: str | None = None) -> str:
        """Submit a job as `user`; return its id. Raises Rejected, Transient, Ambiguous, Unreachable."""
        outcome = self._submit(commands.submit(self._programs, job), job.token, user)
        job_id = parse.submitted_id(outcome.stdout)
        if job_id is None:
            raise messages.submit_failure(outcome, job.token)
        return job_id

    def jobs(self) -> list[parse.PbsJob]:
        """List all users' jobs that have not ended. Raises Unreachable, Transient."""
        mark = new_mark()
        return self._jobs(self._ask(commands.jobs(self._programs, self._options.query_format, mark)), mark)

    def ended_ids(self) -> list[str] | None:
        """Return the ids of all users' jobs that ended lately; None when the server keeps no history."""
        since = time.time() - self._options.ended_listed_for
        outcome = self._run(commands.ended_since(self._programs, since))
        if messages.no_history(outcome):
            return None
        self._check(outcome)
        return [line.strip() for line in outcome.stdout.splitlines() if parse.JOB_ID.fullmatch(line.strip())]

    def ended(self, job_ids: Sequence[str]) -> list[parse.PbsJob]:
        """Return ended jobs with all attributes; those that PBS has forgotten are left out."""
        jobs = []
        mark = new_mark()
        for argv in commands.ended(self._programs, self._options.query_format, mark, job_ids):
            outcome = self._run(argv)
            # The status is not 0 if one of them is unknown, although the others are printed.
            if not messages.WORDS.only_about_ended_jobs(outcome):
                self._check(outcome)
            jobs += self._jobs(outcome, mark)
        return jobs

    def one(self, job_id: str) -> parse.PbsJob | None:
        """Return a job; None when PBS has forgotten it."""
        for history in (True, False):
            mark = new_mark()
            form = self._options.query_format
            outcome = self._run(commands.one(self._programs, form, mark, job_id, history=history))
            if messages.no_history(outcome):
                continue
            if not messages.WORDS.only_about_ended_jobs(outcome):
                self._check(outcome)
            # Servers of a site may have several names, so only the number is compared.
            number = parse.short_id(job_id)
            return next((job for job in self._jobs(outcome, mark) if parse.short_id(job.job_id) == number), None)
        return None

    def queues(self) -> list[PrintedRecord]:
        return self._records(commands.queues)

    def nodes(self) -> list[PrintedRecord]:
        return self._records(commands.nodes)

    def server(self) -> PrintedRecord | None:
        """Return the server's attributes."""
        return next(iter(self._records(commands.server)), None)

    def cancel(self, refs: Sequence[JobRef]) -> None:
        """Cancel jobs, each as its user."""
        self._order(refs, lambda job_ids: commands.cancel(self._programs, job_ids))

    def signal(self, refs: Sequence[JobRef], name: str) -> None:
        """Send a signal to jobs, each as its user."""
        self._order(refs, lambda job_ids: commands.signal(self._programs, job_ids, name))

    def version(self) -> str:
        """Return the output of `qsub --version`: "pbs_version = 23.06.06" for PBS, something else for look-alikes."""
        outcome = self._run(commands.version(self._programs))
        if outcome.not_found or outcome.timed_out:
            self._check(outcome)
        return f"{outcome.stdout}\n{outcome.stderr}".strip()

    def _records(self, build: commands.Listing) -> list[PrintedRecord]:
        mark = new_mark()
        outcome = self._ask(build(self._programs, self._options.query_format, mark))
        records, odd = parse.read_records(self._options.query_format, outcome.stdout, mark)
        self._note_beside(odd, understood=bool(records))
        return records

    def _jobs(self, outcome: CommandResult, mark: str) -> list[parse.PbsJob]:
        records, odd = parse.read_records(self._options.query_format, outcome.stdout, mark)
        jobs = [parse.job(record, self._options.gpu_resource) for record in records]
        odd += [record.name for record, job in zip(records, jobs, strict=True) if job is None]
        self._note_beside(odd, understood=bool(records))
        strange = [line for line in odd if line not in self._noise]
        if strange and not records:
            raise Transient(f"qstat printed no list of jobs: {strange[0]!r}.")
        return [job for job in jobs if job is not None]

    def _note_beside(self, odd: Sequence[str], *, understood: bool) -> None:
        """Log unparsed lines; `understood`: they came together with records."""
        if understood and len(self._noise) < 1000:
            self._noise.update(odd)
        self._note("PBS", odd)
