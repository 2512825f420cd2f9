"""Runs Slurm's commands and parses their output; the only module of this dispatcher that talks to the cluster."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence

from trainmaster.dispatchers.base import DispatcherError, JobRef, Transient, Unreachable
from trainmaster.dispatchers.batch.client import BatchClient, new_mark
from trainmaster.dispatchers.cluster.access.access import Access
from trainmaster.dispatchers.slurm import commands, messages, parse
from trainmaster.dispatchers.slurm.options import SlurmOptions
from trainmaster.dispatchers.slurm.parse import SlurmController
from trainmaster.dispatchers.slurm.pyslurm_reader import NoReader, PyslurmReader

log = logging.getLogger(__name__)

ACCOUNTS_DEADLINE = 15.0  # seconds for sacct, whose database may be slow
READER_REST = 600.0  # seconds until pyslurm is used again after a failure
ACCOUNTS_REST = 30.0  # seconds until accounting is queried again after it failed to answer


class SlurmClient(BatchClient):
    """One method per command. They raise only dispatcher errors."""

    def __init__(self, options: SlurmOptions, access: Access) -> None:
        super().__init__(options, access, messages.WORDS)
        self._options = options
        self._programs = options.programs()
        self._accounts_rest_until = 0.0
        self._reader: PyslurmReader | None = None
        self._reader_rests_until = 0.0
        self._closed = False
        self._closing = threading.Lock()

    def submit(self, job: commands.SbatchRequest, script: str, user: str | None = None) -> tuple[str, str]:
        """Submit a job as `user`; return its id and cluster name. Raises Rejected, Transient, Ambiguous,
        Unreachable."""
        outcome = self._submit(commands.submit(self._programs, job), job.token, user, stdin=script)
        accepted = parse.submitted_id(outcome.stdout)
        if accepted is None:
            raise messages.submit_failure(outcome, job.token)
        return accepted

    def queue(self, *, oldest_first: bool = False) -> list[parse.QueueLine]:
        """List all jobs that Slurm knows: of all users, if jobs run as their users or other users' jobs are shown; else
        of this account. Raises Unreachable, Transient; the latter also for a truncated answer."""
        mark = new_mark()
        everybody = self._access.impersonates or self._options.external_jobs
        # An answer that seems truncated is checked with squeue, because a second source is better proof.
        if not oldest_first and (listed := self._by_pyslurm(everybody=everybody)) is not None:
            return listed
        argv = commands.queue(self._programs, mark, everybody=everybody, oldest_first=oldest_first)
        printed = self._ask(argv).stdout
        jobs, odd = parse.queue(printed, mark)
        self._note("squeue", odd)
        if why := parse.cut_queue(printed, mark):
            raise Transient(f"squeue did not print the whole list of jobs: {why} ({printed.strip()[-100:]!r}).")
        return jobs

    def _by_pyslurm(self, *, everybody: bool) -> list[parse.QueueLine] | None:
        """Return the listing, if pyslurm is configured and works; None: use squeue."""
        if self._options.reader == "commands" or not self._access.here or time.monotonic() < self._reader_rests_until:
            return None
        try:
            reader = self._reader or self._start_reader()
            user = None if everybody else os.geteuid()
            return reader.jobs(deadline=self._options.query_deadline, user=user)
        except NoReader as error:
            self._reader = None
            self._reader_rests_until = time.monotonic() + READER_REST
            level = logging.INFO if self._options.reader == "auto" else logging.WARNING
            log.log(level, "pyslurm is not used for the next %d minutes, squeue is: %s", READER_REST // 60, error)
            return None

    def _start_reader(self) -> PyslurmReader:
        """Start pyslurm's process. Raises NoReader, also after `close`, because nothing would end the process."""
        reader = PyslurmReader(self._shell.environment)
        reader.start(self.version())
        with self._closing:
            if not self._closed:
                self._reader = reader
                log.info("jobs are listed through pyslurm %s", reader.version)
                return reader
        reader.close()
        raise NoReader("the client was closed")

    def close(self) -> None:
        """End pyslurm's process, if there is one."""
        with self._closing:
            self._closed = True
            reader, self._reader = self._reader, None
        if reader:
            reader.close()

    def nodes(self, *, backwards: bool = False) -> list[parse.NodeLine]:
        """List every node in every partition. Raises Unreachable, Transient as `queue`."""
        mark = new_mark()
        printed = self._ask(commands.nodes(self._programs, mark, backwards=backwards)).stdout
        nodes, odd = parse.nodes(printed, mark)
        self._note("sinfo", odd)
        if why := parse.cut_nodes(printed, mark):
            raise Transient(f"sinfo did not print the whole list of nodes: {why} ({printed.strip()[-100:]!r}).")
        return nodes

    def cancel(self, refs: Sequence[JobRef]) -> None:
        """Cancel jobs, each as its user."""
        self._order(refs, lambda job_ids: commands.cancel(self._programs, job_ids))

    def signal(self, refs: Sequence[JobRef], name: str) -> None:
        """Send a signal to jobs, each as its user."""
        self._order(refs, lambda job_ids: commands.signal(self._programs, job_ids, name))

    def show_job(self, job_id: str) -> dict[str, str]:
        """Return what the controller knows of a job; empty when it has forgotten it."""
        outcome = self._run(commands.show_job(self._programs, job_id))
        if "Invalid job id" in outcome.stderr:
            return {}
        self._check(outcome)
        return parse.key_values(outcome.stdout)

    def account(self, ref: JobRef) -> dict[str, str] | None:
        """Return accounting's record of a job's end; None when it has none (yet), or when the site keeps no accounting.

        sacct tries for 45 s to reach a slurmdbd that hangs, and meanwhile the caller's other jobs would wait: so it
        gets less time, and after a failure it is not run for a while. Raises Unreachable, Transient."""
        if time.monotonic() < self._accounts_rest_until:
            raise Unreachable("Slurm's accounting did not answer a moment ago.")
        deadline = min(ACCOUNTS_DEADLINE, self._options.query_deadline)
        try:
            outcome = self._run(commands.account(self._programs, ref.job_id), deadline)
            if "accounting storage is disabled" in outcome.stderr:
                return None
            self._check(outcome)
        except DispatcherError:
            self._accounts_rest_until = time.monotonic() + ACCOUNTS_REST
            raise
        return parse.accounting(outcome.stdout, ref.token)

    def configuration(self) -> dict[str, str]:
        return parse.configuration(self._ask(commands.show_config(self._programs)).stdout)

    def controller(self) -> SlurmController:
        """Return what the controller says of itself."""
        return SlurmController.of(self.configuration())

    def version(self) -> str:
        """Return, for example, "22.05.8"; Debian prints "slurm-wlm 22.05.8"."""
        words = self._ask(commands.version(self._programs)).stdout.split()
        return words[-1] if words else ""
