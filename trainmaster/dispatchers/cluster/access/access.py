"""Gives dispatchers one interface to a cluster, whether it is local, behind sudo or behind SSH."""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from trainmaster.dispatchers.base import FolderFacts, HeldFiles, JobFile, JobRef, Problem, Remains, StreamPosition
from trainmaster.dispatchers.cluster.access import helper_client, openssh_transport
from trainmaster.dispatchers.cluster.access.config import (
    AccessOptions,
    Impersonation,
    SshClient,
    SshOptions,
    is_account_name,
)
from trainmaster.dispatchers.cluster.access.helper_client import HelperClient
from trainmaster.dispatchers.cluster.access.inspection import Inspection
from trainmaster.dispatchers.cluster.access.remote import RemoteFiles, RemoteFolder, RemoteShell, announce, folder_facts
from trainmaster.dispatchers.cluster.access.transport import LocalTransport, ProgramTransport
from trainmaster.dispatchers.cluster.command_runner import DEFAULT_PATH, Runner, Shell
from trainmaster.dispatchers.cluster.folder import JobFolder, cache_dir_of, check_token

SUDO = "/usr/bin/sudo"
PYTHON = "/usr/bin/python3"
FIRST_ORDINARY_UID = 1000  # the helper has its own limit, `min_uid` in its configuration


class JobFolderAccess(Protocol):
    """The folder of one job, wherever it lies. Errors as of `folder.JobFolder`, and Unreachable."""

    token: str
    path: Path

    def stage(self, files: Mapping[str, JobFile]) -> None: ...
    def stage_sharing(self, files: Mapping[str, JobFile]) -> None: ...
    def shared_folders(self, files: Mapping[str, JobFile]) -> list[Path]: ...
    def collect(self, places: Mapping[str, StreamPosition] | None = None, most: int = 2**30) -> Remains: ...
    def forget(self) -> None: ...


class Access:
    """Access to one cluster. Thread-safe; connections are opened when they are first needed."""

    def __init__(
        self, options: AccessOptions, root: Path, environment: Mapping[str, str], path: str = DEFAULT_PATH
    ) -> None:
        """Every command gets `environment` and `path`. Nothing is connected or started here."""
        self.here = options.ssh is None
        self.account = (options.ssh and options.ssh.user) or pwd.getpwuid(os.geteuid()).pw_name
        self._options, self._root, self._environment, self._path = options, root, environment, path
        self._lock = threading.RLock()
        self._lines: dict[str | None, ProgramTransport] = {}
        self._helpers: dict[str | None, HelperClient] = {}

    @property
    def impersonates(self) -> bool:
        """Whether jobs can run as another account than `account`."""
        return self._options.impersonation is not Impersonation.NONE

    def why_not(self, user: str | None) -> str | None:
        """Return why jobs cannot run as `user`, in a sentence; None when no reason is known."""
        if user is None and self._options.require_user_link:
            return (
                "Jobs run here under the account of the user who asks, and none is linked: an administrator can do it "
                "with `det user link-with-agent-user`."
            )
        if user == "root" and self.impersonates:
            return "Jobs never run as root; link the user to an ordinary account."
        if user is None or user == self.account:
            return None
        if not self.impersonates:
            return f"Jobs run here as {self.account}, the account of the master; they cannot run as {user}."
        if not is_account_name(user):
            return f"{user!r} cannot be the name of an account."
        if self.here:
            try:
                uid = pwd.getpwnam(user).pw_uid
            except KeyError:
                return f"There is no account {user} on this machine."
            if uid < FIRST_ORDINARY_UID:
                return (
                    f"Jobs never run as {user}: it is a system account (uid {uid}). Link the user to an ordinary one."
                )
        return None

    def name(self, owner: str) -> str | None:
        """Return the account of a job for `Observation.user`: None for the master's own."""
        return None if owner == self.account else owner

    def is_own(self, user: str | None) -> bool:
        """Whether this process has the same access to files as `user` on the cluster."""
        return self.here and self._whom(user) is None

    def by_user(self, refs: Iterable[JobRef]) -> dict[str | None, list[JobRef]]:
        """Group jobs by the account that may cancel or signal them."""
        groups: dict[str | None, list[JobRef]] = {}
        for ref in refs:
            groups.setdefault(self._whom(ref.user), []).append(ref)
        return groups

    def shell(self, user: str | None = None) -> Runner:
        """Return a runner of commands as `user`; None is the account of the master."""
        if self.is_own(user):
            return Shell(self._environment, path=self._path)
        return RemoteShell(self._helper(self._whom(user)), self._whom(user), self._environment, self._path)

    def folder(self, token: str, user: str | None = None) -> JobFolderAccess:
        """Return the job folder of `token`. Raises Rejected for an invalid token."""
        if self.is_own(user):
            return JobFolder(self._root, token)
        cache_dir = cache_dir_of(self._whom(user) or self.account)
        return RemoteFolder(self._helper(self._whom(user)), self._root, check_token(token), cache_dir)

    def files(self, user: str | None = None) -> HeldFiles | None:
        """Return access to files of jobs that run as `user`; None when this process can access them itself."""
        return None if self.is_own(user) else RemoteFiles(self._helper(self._whom(user)))

    def output(self, token: str) -> Path | None:
        """Return where the scheduler writes the job's own output; None unless this process can read it."""
        return JobFolder(self._root, token).output if self.here and not self.impersonates else None

    def announce(self, url: str) -> int:
        """Write the master's address into the file that jobs read when they cannot reach the address they know. Returns
        the uid of the file's owner. Raises Rejected, Transient, Unreachable."""
        return announce(self._inspector(), self._root, url)

    def problems(self) -> list[Problem]:
        """Return what an administrator should fix before jobs can run as configured."""
        with self._lock:
            line = self._line(None)
        installed = HelperClient(line, [self._options.helper])
        return Inspection(
            self._options, self._root, self.account, self.shell(), self._inspector(), installed
        ).problems()

    def folders(self, paths: Sequence[str], user: str | None) -> Mapping[str, FolderFacts | None]:
        """Return what `user` (None: the account of the master) finds at each path; None where nothing can be seen.
        Raises Rejected, Transient, Unreachable."""
        there = self._inspector() if self._whom(user) is None else self._helper(self._whom(user))
        return folder_facts(there, paths)

    def close(self) -> None:
        """Close all connections; commands that run are interrupted."""
        with self._lock:
            for line in self._lines.values():
                line.close()
            self._lines.clear()
            self._helpers.clear()

    def _whom(self, user: str | None) -> str | None:
        return None if user == self.account or not self.impersonates else user

    def _inspector(self) -> HelperClient:
        """Return the helper as the account of the master, with no rights but its own."""
        if not self.here:
            return self._helper(None)
        with self._lock:
            line = self._line(None)
        return HelperClient(line, helper_client.bootstrap(PYTHON), source=helper_client.own_source())

    def _helper(self, user: str | None) -> HelperClient:
        """Return the helper as `user`; None is the account that logs in over SSH."""
        with self._lock:
            if user not in self._helpers:
                self._helpers[user] = self._make_helper(user)
            return self._helpers[user]

    def _make_helper(self, user: str | None) -> HelperClient:
        options = self._options
        login = user if options.impersonation is Impersonation.SSH else None
        line = self._line(login)
        ssh = options.ssh

        def explain(complaint: str) -> str | None:
            explained = explain_sudo(complaint, user or self.account, self.account, options.helper)
            return explained or (openssh_transport.explain(complaint, ssh, login) if ssh else None)

        if user is not None and options.impersonation is Impersonation.SUDO:
            argv = [SUDO, "-n", "-H", "-u", user, "--", options.helper]
            return HelperClient(line, argv, user=user, explain=explain)
        python = ssh.python if ssh else PYTHON
        return HelperClient(
            line, helper_client.bootstrap(python), source=helper_client.own_source(), user=login, explain=explain
        )

    def _line(self, login: str | None) -> ProgramTransport:
        if login not in self._lines:
            self._lines[login] = self._make_line(self._options.ssh, login)
        return self._lines[login]

    def _make_line(self, ssh: SshOptions | None, login: str | None) -> ProgramTransport:
        if ssh is None:
            return LocalTransport({"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"})
        if ssh.client is SshClient.OPENSSH:
            return openssh_transport.OpenSshTransport(ssh, login)
        # Imported late: it takes half a second, and only some sites use it.
        from trainmaster.dispatchers.cluster.access.paramiko_transport import ParamikoTransport

        return ParamikoTransport(ssh, login)


def make_access(
    options: AccessOptions, root: Path, *, environment: Mapping[str, str] | None = None, path: str = DEFAULT_PATH
) -> Access:
    """Return the access to a cluster whose job folders are in `root`."""
    return Access(options, root, environment or {}, path)


def explain_sudo(complaint: str, user: str, account: str, program: str) -> str | None:
    """Return a sentence for sudo's error message, with how to fix it; None when the message is not sudo's."""
    lines = [line for line in complaint.splitlines() if line.startswith("sudo: ") or "is not allowed to" in line]
    if not lines:
        return None
    last = lines[-1].removeprefix("sudo: ").rstrip(".")
    if "unknown user" in last:
        return f"There is no account {user} on the cluster."
    if "command not found" in last:
        return f"The helper {program} is not installed: see `trainmaster helper show`."
    return (
        f"sudo does not let {account} run {program} as {user} ({last}): put the line that `trainmaster helper show` "
        f"prints into /etc/sudoers.d, and {user} into its group."
    )
