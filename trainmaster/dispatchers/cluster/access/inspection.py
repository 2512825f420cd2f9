"""Checks the access to a cluster for `trainmaster doctor`: missing permissions, and permissions that go too far."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from trainmaster.dispatchers.base import Problem
from trainmaster.dispatchers.cluster.access.config import AccessOptions, Impersonation
from trainmaster.dispatchers.cluster.access.helper_client import FailedInHelper, HelperClient, RefusedByHelper
from trainmaster.dispatchers.cluster.access.transport import ConnectionLost, ProgramNotStarted
from trainmaster.dispatchers.cluster.command_runner import Runner
from trainmaster.dispatchers.cluster.jobfolder import job_files

DEADLINE = 30.0  # seconds per query
SHOW = "`trainmaster helper show` prints what belongs there."
Facts = Mapping[str, list[int] | None]  # path -> mode and owner's uid


class Inspection:
    """One inspection, as the account of the master on the cluster."""

    def __init__(
        self,
        options: AccessOptions,
        root: Path,
        account: str,
        shell: Runner,
        there: HelperClient,
        installed: HelperClient,
    ) -> None:
        """`there`: the helper of this release; `installed`: the installed one, run as the account of the master."""
        self._options, self._root, self._account = options, root, account
        self._shell, self._there, self._program = shell, there, installed

    def problems(self) -> list[Problem]:
        problems = self._identity()
        if self._options.impersonation is Impersonation.NONE:
            return problems
        program = PurePosixPath(self._options.helper)
        paths = [str(self._root), job_files.POLICY, *map(str, (program, *program.parents))]
        try:
            facts: Facts = self._there.ask("check", DEADLINE, paths=paths)["paths"]
        except (ProgramNotStarted, ConnectionLost, RefusedByHelper, FailedInHelper) as error:
            return [*problems, Problem(f"Cannot inspect the cluster: {error}", "Fix this first.", fatal=True)]
        problems += self._job_root(facts[str(self._root)])
        if self._options.impersonation is Impersonation.SUDO:
            problems += self._installed(facts) or [*self._version(), *self._sudo()]
        return problems

    def _identity(self) -> list[Problem]:
        key = self._options.ssh.identity_file if self._options.ssh else None
        if key is None or "{user}" in key:
            return []
        try:
            mode = os.stat(os.path.expanduser(key)).st_mode
        except OSError as error:
            return [Problem(f"ssh.identity_file: {key} cannot be read: {error.strerror}.", "Make a key.", fatal=True)]
        if mode & 0o077:
            return [Problem(f"ssh.identity_file: {key} can be read by others.", f"chmod 600 {key}", fatal=True)]
        return []

    def _job_root(self, facts: list[int] | None) -> list[Problem]:
        root, fix = self._root, f"mkdir -p {self._root} && chmod 1777 {self._root}"
        if facts is None or not stat.S_ISDIR(facts[0]):
            return [Problem(f"The folder of jobs {root} does not exist on the cluster.", fix, fatal=True)]
        if not facts[0] & stat.S_ISVTX and facts[0] & 0o022:
            text = f"The folder of jobs {root} is not sticky: users can replace each other's job folders."
            return [Problem(text, fix, fatal=True)]
        if not facts[0] & 0o022:
            return [Problem(f"Users cannot make their job folders in {root}.", fix, fatal=True)]
        return []

    def _installed(self, facts: Facts) -> list[Problem]:
        """Only root may own or write the program, the folders above it and its configuration."""
        program = self._options.helper
        if facts[program] is None:
            return [Problem(f"The helper {program} is not installed.", SHOW, fatal=True)]
        if facts[job_files.POLICY] is None:
            return [Problem(f"The helper's configuration {job_files.POLICY} does not exist.", SHOW, fatal=True)]
        problems = []
        for path, known in facts.items():
            if path == str(self._root) or known is None:
                continue
            mode, owner = known[:2]
            if owner != 0 or (mode & 0o022 and not mode & stat.S_ISVTX):
                text = f"{path} can be changed by other accounts than root, who could then act as any user."
                problems.append(Problem(text, f"chown root:root {path} && chmod go-w {path}", fatal=True))
        return problems

    def _version(self) -> list[Problem]:
        try:
            self._program.ask("check", DEADLINE)
        except RefusedByHelper:
            pass  # the account of the master need not be one that jobs may run as
        except (ProgramNotStarted, ConnectionLost, FailedInHelper) as error:
            text = str(error)
            return [Problem(f"{text[:1].upper()}{text[1:].rstrip('.')}.", SHOW, fatal=True)]
        return []

    def _sudo(self) -> list[Problem]:
        program = self._options.helper
        listed = self._shell.run(["sudo", "-n", "-l"], deadline=DEADLINE)
        # If its output is not a pipe, sudo breaks a rule at 80 columns and indents the rest further (display_privs).
        rules = [line for line in re.sub(r"\n {8,}", " ", listed.stdout).splitlines() if program in line]
        if not any("NOPASSWD" in line for line in rules):
            text = f"sudo does not let {self._account} run {program} without a password."
            return [Problem(text, SHOW, fatal=True)]
        if any("SETENV" in line and "NOSETENV" not in line for line in rules):
            text = f"sudo lets {self._account} set the environment of {program} (SETENV)."
            return [Problem(text, f"Remove SETENV from the rule. {SHOW}", fatal=True)]
        return []
