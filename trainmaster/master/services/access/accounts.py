"""The Unix account that a user's jobs run as: Determined's agent user and group."""

from __future__ import annotations

import pwd
import re
from contextlib import suppress
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.dispatchers.contract.agents import FIRST_ORDINARY_ID
from trainmaster.master.db.tables import User, Workspace
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.clusters.clusters import Cluster
from trainmaster.master.services.context import BoundService
from trainmaster.master.services.errors import Invalid

LAST_ID = 2**32 - 2  # of user and group ids; the one above means "not set"
LONGEST_NAME = 256  # characters; directories of sites have longer names than useradd takes
_NOT_IN_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f/:]")


@dataclass(frozen=True)
class Account:
    """A Unix account and its group. The name decides; ids are checked where this machine has the account. Of a
    workspace's parts may be None."""

    uid: int | None
    user: str | None
    gid: int | None
    group: str | None


def account_on(session: Session, cluster: Cluster, user_id: int, workspace_id: int | None = None) -> str | None:
    """Return the account that a user's jobs run as on a cluster: their workspace's, else the user's own; None is the
    master's."""
    if not cluster.facts.runs_as_users:
        return None
    shared = session.scalar(select(Workspace.agent_user).where(Workspace.id == workspace_id)) if workspace_id else None
    return shared or session.scalar(select(User.agent_user).where(User.id == user_id))


def without_effect(
    session: Session, cluster: Cluster, user_id: int, workspace_id: int | None, account: str | None
) -> list[str]:
    """Return what of the accounts that are linked to a user, or to a workspace, has no effect on a job that runs as
    `account` (None: as the master's), a sentence each."""
    user = session.get(User, user_id)
    workspace = session.get(Workspace, workspace_id) if workspace_id else None
    linked = workspace if workspace is not None and workspace.agent_user else user
    if linked is None or linked.agent_user is None:
        return []
    if account is None:
        text = f"agentUser {linked.agent_user} has no effect: jobs on {cluster.name} all run as {cluster.account}."
        return [text]
    with suppress(KeyError):
        if pwd.getpwnam(account).pw_gid == linked.agent_gid:
            return []
    if linked.agent_gid is None and linked.agent_group is None:
        return []
    group = " ".join(str(part) for part in (linked.agent_gid, linked.agent_group) if part is not None)
    return [f"agentGid and agentGroup ({group}) have no effect: the job has the groups of its account {account}."]


@dataclass(frozen=True)
class RunsAs:
    """A job's owner, and the account that it runs as. `cluster`: empty while it is not known where it will run."""

    owner_id: int
    workspace_id: int
    cluster: str = ""
    account: str | None = None


class JobAccounts(BoundService):
    """The accounts that users' jobs run as."""

    def expected(self, pool: str, job: RunsAs) -> str | None:
        """Return the account that a job will run as, before it is submitted; None while its pool does not exist."""
        served = next((one for one in self._clusters.pools() if one.pool.name == pool), None)
        if served is None:
            return None
        with self._store.autocommit() as session:
            return account_on(session, served.cluster, job.owner_id, job.workspace_id) or served.cluster.account

    def may_open(self, caller: Caller, job: RunsAs) -> bool:
        """Whether the caller may run programs in a job, as a shell or a notebook does. Its owner and administrators
        may. A user whose roles permit changing it may only where the caller's own jobs would run as the same account:
        this gains nothing then."""
        if caller.owns(job.owner_id):
            return True
        if not caller.may_change(job.owner_id):
            return False
        if not self._clusters.run_as_users:
            return True
        cluster = next((one for one in self._clusters if one.name == job.cluster), None)
        if cluster is None:
            return False
        with self._store.autocommit() as session:
            return account_on(session, cluster, caller.user_id, job.workspace_id) == job.account


def is_account_name(name: str) -> bool:
    """Whether a text that a job reports could be the name or the number of an account: it becomes a word of `ssh` on
    other machines."""
    return 0 < len(name) <= LONGEST_NAME and name[0] not in "-#" and not _NOT_IN_NAME.search(name)


def check_account(account: Account) -> Account:
    """Return an account with the name by which this machine's directory knows it. Which names there are is for the
    directories of the machines to say, so any that is no option, path or line may be one. Raises Invalid for an account
    that jobs cannot or must not run as."""
    for key, name in (("agentUser", account.user), ("agentGroup", account.group)):
        if name is not None and not is_account_name(name):
            raise Invalid(f"{key}: {name!r} cannot be the name of a Unix account or group.")
    for key, number in (("agentUid", account.uid), ("agentGid", account.gid)):
        if number is not None and not 0 <= number <= LAST_ID:
            raise Invalid(f"{key}: {number} is not an id; it must be from 0 to {LAST_ID}.")
    if account.user == "root" or account.uid == 0 or account.group == "root" or account.gid == 0:
        raise Invalid("Jobs never run as root; name an ordinary account and group.")
    if account.uid is not None and account.uid < FIRST_ORDINARY_ID:
        raise Invalid(
            f"agentUid: {account.uid} is a system account; jobs run as ordinary ones ({FIRST_ORDINARY_ID} up)."
        )
    if account.user is None:
        if account.uid is not None:
            raise Invalid("agentUser is missing: jobs run as an account by its name, which agentUid does not say.")
        return account
    try:
        known = pwd.getpwnam(account.user)
    except KeyError:
        return account  # it may exist on the cluster
    if known.pw_uid < FIRST_ORDINARY_ID:
        raise Invalid(
            f"agentUser: {account.user} is a system account (uid {known.pw_uid}); jobs run as ordinary ones "
            f"({FIRST_ORDINARY_ID} up)."
        )
    if account.uid is not None and known.pw_uid != account.uid:
        raise Invalid(f"agentUid: {account.user} has the uid {known.pw_uid} on this machine, not {account.uid}.")
    # A directory may know one account by several names, and schedulers print this one.
    return replace(account, user=known.pw_name)
