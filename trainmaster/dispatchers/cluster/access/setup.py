"""Texts for `trainmaster helper show`: what an administrator installs so that jobs can run as their users."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from trainmaster.dispatchers.cluster.access.config import HELPER
from trainmaster.dispatchers.cluster.jobfolder import helper, job_files

ACCOUNT = "trainmaster"
GROUP = "hpcusers"
SUDOERS = "/etc/sudoers.d/trainmaster"


def sudoers_line(account: str = ACCOUNT, program: str = HELPER, group: str = GROUP) -> str:
    """Return the sudoers rule: without arguments, without SETENV, never as root."""
    return f'{_escaped(account)} ALL=(%{_escaped(group)},!root) NOPASSWD: {_escaped(program)} ""'


def _escaped(name: str) -> str:
    """Return a name as sudoers(5) reads it: groups of directories have blanks, "@" and backslashes."""
    return re.sub(r"([^A-Za-z0-9_./-])", r"\\\1", name)


def policy(
    job_roots: Sequence[str],
    programs: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    storage_roots: Sequence[str] = (),
) -> str:
    """Return the content of /etc/trainmaster/helper.json."""
    content = {
        "job_roots": list(job_roots),
        "storage_roots": list(storage_roots),
        "programs": dict(programs or {}),
        "environment": dict(environment or {}),
        "min_uid": 1000,
        "denied_users": [],
        "denied_groups": list(helper.DENIED_GROUPS),
    }
    return json.dumps(content, indent=2) + "\n"


def steps(
    policy_text: str,
    roots: Sequence[str],
    account: str = ACCOUNT,
    program: str = HELPER,
    group: str = GROUP,
    storages: Sequence[str] = (),
) -> str:
    """Return the installation steps, for root on the machine that has the scheduler's commands."""
    folders = "\n".join(f"   mkdir -p {root} && chmod 1777 {root}" for root in (*roots, *storages))
    return f"""\
To run jobs as the users who submit them, root installs this on the machine that has the scheduler's commands.

1. The helper, one file of Python that any account may read and only root may change:
   trainmaster helper show file > {program}
   chown root:root {program} && chmod 755 {program}

2. Its configuration, {job_files.POLICY} (root's, mode 644). It alone decides what the helper may access:
{_indented(policy_text)}
3. One line for sudo, in {SUDOERS} (mode 440, check it with visudo -c): {account} is the account of
   the master, {group} a group of all users whose jobs it may run; no SETENV, no wildcards, never root:
   {sudoers_line(account, program, group)}

4. The folders of jobs and of checkpoints, in which each user makes folders that no other user can enter (sticky, like
   /tmp), on a file system that all nodes see:
{folders}

5. In the master's configuration, in the section of the resource manager:
   impersonation: sudo
   helper: {program}

6. For each person, by an administrator of the master:
   det user link-with-agent-user NAME --agent-uid UID --agent-user ACCOUNT --agent-gid GID --agent-group GROUP

Then `trainmaster doctor` reports whether anything is missing, or can be changed by other accounts than root, and tries
the folders as users (--account NAME).
"""


def _indented(text: str) -> str:
    return "".join(f"   {line}\n" for line in text.splitlines())
