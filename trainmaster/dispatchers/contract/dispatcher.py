"""The methods of a dispatcher, and what some dispatchers can do besides. `base` explains the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from trainmaster.config.resource_managers import DispatcherOptions
from trainmaster.config.user_options import UserOptions
from trainmaster.dispatchers.contract.values import (
    Capabilities,
    Explanation,
    FolderFacts,
    JobRef,
    JobSpec,
    Pool,
    Remains,
    Signal,
    Snapshot,
    StreamPosition,
    Traits,
)


@runtime_checkable
class Dispatcher(Protocol):
    """One cluster.

    The master loads the announced class, checks it against this contract, validates the administrator's section with
    `Options`, and calls the class with a `Setup`. The constructor may raise `Rejected` with a sentence for the
    administrator. It does no slow work and does not contact the cluster.

    Thread-safety: the master calls all verbs from worker threads, several at once and also the same one, with two
    exceptions: `observe` is called from one thread at a time, and after `close` nothing is called. A verb blocks until
    it has its answer; it must have a deadline of its own, because the master cannot interrupt it.

    Ownership: the dispatcher owns the job folders `Setup.job_root/token`, from `submit` to `forget`, and everything in
    the scheduler that carries `Setup.prefix`. It never touches jobs and folders of other prefixes. Arguments belong to
    the master and are not changed; what is returned belongs to the master and does not change afterwards.

    Consistency: the scheduler is the truth of what jobs do, and a dispatcher keeps no state that it could not find
    again: another process may make a second dispatcher for the same cluster at any time, and a new one takes over all
    jobs. A job that `submit` returned is listed by every later `observe` until the scheduler forgets it, or is absent;
    `cancel` and `signal` are requests, whose effect only `observe` shows.
    """

    contract_version: ClassVar[int]  # the version of this contract that it was written for, as a number: 2
    kind: ClassVar[str]  # the short name that it is announced under
    traits: ClassVar[Traits]
    Options: ClassVar[type[DispatcherOptions]]  # the model of its section in the master's file
    UserOptions: ClassVar[type[UserOptions] | None]  # the model of its section in experiments; None: it has none
    name: str  # the cluster's name in the master's configuration

    def probe(self) -> Capabilities:
        """Inspect the cluster; change nothing.

        Returns:
            Version, abilities and problems of the cluster; problems are sentences for the administrator. Times are
            seconds.

        Raises:
            Unreachable: the cluster cannot be asked.
            Transient: it answers that it is busy.
        """

    def pools(self) -> Sequence[Pool]:
        """List all pools with live slot counts.

        Returns:
            Every pool that jobs can name, in an order that does not change between calls; pools that are down too.

        Raises:
            Unreachable: the cluster cannot be asked; the master keeps its last listing.
            Transient: it answers that it is busy, or contradicts itself.
        """

    def check(self, spec: JobSpec) -> Sequence[str]:
        """Return why a job can never run here: forbidden characters, names that are too long, options that are not
        allowed, more than the pool has. Quick; submits nothing; a cluster that does not answer is not a reason.

        Args:
            spec: a job that may never be submitted; its token is only an example.

        Returns:
            Whole sentences for the user, each with how to fix it; empty when the job may be submitted.
        """

    def remarks(self, spec: JobSpec) -> Sequence[str]:
        """Return what the owner should know about a job that can run, but not quite as asked. Quick; does not contact
        the cluster.

        Args:
            spec: the job, before it is submitted.

        Returns:
            Whole sentences for the log of the job; usually empty.
        """

    def submit(self, spec: JobSpec) -> JobRef:
        """Stage the job folder, render the script, hand it to the scheduler under `spec.token`. Staging is idempotent;
        two jobs of one token never run at the same time, even after two submits. A job that the scheduler refused may
        still be in a snapshot, as FAILED with `never`.

        Args:
            spec: the job. `slots` and `slots_per_node` count accelerators, or CPU shares in a pool of CPUs;
                `walltime_grace` is seconds, `container.shm_size` bytes.

        Returns:
            The job as the scheduler knows it.

        Raises:
            Rejected: for good; the message is for the user.
            Transient: nothing happened; the same call may work later.
            Ambiguous: the job may have been submitted (a timeout, a lost connection).
            Unreachable: the cluster cannot be asked; nothing was submitted.
        """

    def observe(self) -> Snapshot:
        """List all our jobs by one bulk query, however many there are.

        Returns:
            All of them, never a part, with the time just before the scheduler was asked (epoch seconds).

        Raises:
            Unreachable: the cluster cannot be asked; no job's state changes.
            Transient: its answer is truncated, or contradicts itself.
        """

    def cancel(self, refs: Sequence[JobRef]) -> None:
        """Ask for the end of jobs. Idempotent; an unknown or ended job is not an error. `observe` shows the effect.

        Args:
            refs: jobs that `submit` or `observe` named.

        Raises:
            Transient, Unreachable: ask again later.
        """

    def signal(self, refs: Sequence[JobRef], signal: Signal) -> None:
        """Deliver a signal to the runtime on each node of each job. Best effort: a job that does not run is not an
        error.

        Args:
            refs: jobs that `submit` or `observe` named.
            signal: which one.

        Raises:
            Transient, Unreachable: ask again later.
        """

    def explain(self, ref: JobRef) -> Explanation:
        """Return why a job waits, or how one that left the queue ended, from accounting where it exists.

        Args:
            ref: a job that `submit` or `observe` named.

        Returns:
            The reason in words for the job's owner; with state UNKNOWN when nothing is known.

        Raises:
            Transient, Unreachable: ask again later.
        """

    def collect(
        self, token: str, user: str | None = None, places: Mapping[str, StreamPosition] | None = None, most: int = 2**30
    ) -> Remains:
        """Read what a job left in its folder. `folder.JobFolder` implements it.

        Args:
            token: of the job.
            user: the account that the job runs as, which reads; None is the account that the master runs under.
            places: where to begin in each report stream, by its name; streams that it does not name are read from
                their beginning, and none without it.
            most: bytes of each stream that may be read at all.

        Returns:
            The exit records, a few megabytes of the streams, the end of the output. Empty when there is nothing.

        Raises:
            Transient, Unreachable: ask again later.
        """

    def forget(self, token: str, user: str | None = None) -> None:
        """Remove a job folder. Called once everything in it has been read. Idempotent.

        Args:
            token: of the job.
            user: the account that the job ran as, which removes; None is the account that the master runs under.

        Raises:
            Transient: the job still lives.
            Unreachable: ask again later.
        """

    def log_path(self, token: str) -> Path | None:
        """Return where the scheduler writes the job's own output.

        Args:
            token: of the job.

        Returns:
            The file, whether or not it exists yet; None when it is not on this machine.
        """

    def close(self) -> None:
        """Close connections and end threads. Jobs keep running. Nothing is called afterwards."""


@runtime_checkable
class SeesFolders(Protocol):
    """A dispatcher that can tell what accounts may do with folders of its cluster, for `trainmaster doctor`."""

    def folders(self, paths: Sequence[str], user: str | None) -> Mapping[str, FolderFacts | None]:
        """Return what `user` (None: the account of the master there) finds at each path; None where it sees nothing.
        Raises Rejected, Transient, Unreachable."""


class HeldFiles(Protocol):
    """Removes files of an account that this process may not, or cannot, access itself."""

    def remove(self, folder: str, patterns: Sequence[str], since: float | None) -> Mapping[str, int]:
        """Remove what matches, as that account, by the rules of `jobfolder.trees`; then the folder, if it is empty.

        Args:
            folder: full path.
            patterns: globs relative to it; `**` stands for any number of folders.
            since: epoch seconds; a folder that did not change since is left alone. None: any age.

        Returns what is left: bytes by path, folders with a slash at the end. Raises trees.Untouched, trees.Unfinished,
        Rejected, Transient, Unreachable."""


@runtime_checkable
class HoldsFiles(Protocol):
    """A dispatcher whose jobs' files may be on other machines or belong to other accounts than this process."""

    def files(self, user: str | None) -> HeldFiles | None:
        """Return access to files of jobs that run as `user`; None when this process can access them itself."""


@runtime_checkable
class Announces(Protocol):
    """A dispatcher that can write a file into its folder of job folders, even if this machine does not see it."""

    def announce(self, url: str) -> int | None:
        """Write the master's address into `master-url` in the folder of the job folders: jobs that cannot reach the one
        they were given read it there. Returns the uid that the file belongs to there; jobs believe that account beside
        their own and root's, and with None only these. Idempotent. Raises Rejected, Transient, Unreachable."""
