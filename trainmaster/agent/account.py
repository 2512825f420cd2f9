"""Chooses the account that a job runs as on this host."""

from __future__ import annotations

import grp
import os
import pwd
import socket

from trainmaster.agent_protocol.messages import FIRST_ORDINARY_ID
from trainmaster.containers.docker import ContainerUser

ROOT = 0


class NoAccount(Exception):
    """A job cannot run as it should on this host; the message says why."""


def account_for(name: str | None, default: str | None, *, linked: bool = False) -> ContainerUser:
    """Return the account of a job that asks for the account `name`, or names none.

    Args:
        default: account that the administrator configured for jobs that name none; None is the agent's own account.
        linked: whether jobs may run as ordinary accounts that the master names.

    Raises NoAccount.
    """
    own = os.geteuid()
    host = socket.gethostname()
    wanted = name or default
    if wanted is None:
        if own == ROOT:
            raise NoAccount(
                f"The agent on {host} runs as root and jobs must not: start it with --job-user NAME, the account of "
                "jobs that name none."
            )
        return _of(pwd.getpwuid(own))
    try:
        account = pwd.getpwnam(wanted)
    except KeyError:
        raise NoAccount(
            f"There is no account {wanted!r} on {host}: its administrator must make it there, or an administrator of "
            "the master link the user, or the workspace, to another."
        ) from None
    if account.pw_uid == ROOT and default != wanted:
        raise NoAccount(f"Jobs do not run as root on {host}; its administrator has not allowed it (--job-user root).")
    if account.pw_uid not in (own, ROOT) and wanted != default:
        if not linked:
            raise NoAccount(
                f"Jobs of {wanted} may not run as that account on {host}: its administrator must start the agent there "
                "with --linked-users, as root, for users and workspaces that are linked to accounts."
            )
        if account.pw_uid < FIRST_ORDINARY_ID:
            raise NoAccount(
                f"{wanted} is a system account on {host} (below {FIRST_ORDINARY_ID}); jobs run as ordinary ones."
            )
    if own not in (ROOT, account.pw_uid):
        own_name = pwd.getpwuid(own).pw_name
        raise NoAccount(
            f"The agent on {host} runs as {own_name} and cannot start jobs of {wanted}: the host's administrator must "
            "start it as root for that, with --job-user for jobs that name no account."
        )
    return _of(account)


def _of(entry: pwd.struct_passwd) -> ContainerUser:
    groups = tuple(
        group for group in os.getgrouplist(entry.pw_name, entry.pw_gid) if _harmless(group) or entry.pw_uid == ROOT
    )
    return ContainerUser(entry.pw_name, entry.pw_uid, entry.pw_gid, groups)


def _harmless(group: int) -> bool:
    """Whether a job may keep this group: a member of Docker's group has root's power on this host."""
    try:
        return group != ROOT and grp.getgrgid(group).gr_name != "docker"
    except KeyError:
        return True
