"""Checks the folders that jobs of users write to and read, as the accounts that the jobs run as.

The master's own permissions say nothing of them: with impersonation a folder of checkpoints that the service account
made with mode 0755 looks right to the master, and every first checkpoint fails.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trainmaster.config.master import MasterConfig
from trainmaster.config.resource_managers import DispatcherOptions
from trainmaster.config.storage import SharedFs
from trainmaster.dispatchers.base import DispatcherError, FolderFacts, SeesFolders
from trainmaster.master.findings import Finding
from trainmaster.master.services.clusters.clusters import Cluster

CHECKPOINTS = "checkpoint_storage"


@dataclass(frozen=True)
class Root:
    """A folder of the site. `written`: jobs make files in it; else they read there."""

    subject: str
    path: str
    written: bool


def roots_of(config: MasterConfig, manager: DispatcherOptions, job_root: Path) -> Iterator[Root]:
    """Yield the folders that the configuration names for the jobs of a cluster."""
    yield Root(f"job folders of {manager.cluster_name}", str(job_root), written=True)
    if isinstance(config.checkpoint_storage, SharedFs) and config.checkpoint_storage.host_path is not None:
        yield Root(CHECKPOINTS, config.checkpoint_storage.root, written=True)
    if (images := manager.image_folder()) is not None:
        yield Root("images", images[0], written=False)
    for mount in config.task_container_defaults.bind_mounts or ():
        yield Root("bind_mounts", mount.host_path, written=False)


def findings(
    config: MasterConfig,
    manager: DispatcherOptions,
    cluster: Cluster,
    job_root: Path,
    data: Path,
    accounts: Sequence[str],
) -> Iterator[Finding]:
    """Yield what users cannot do with the folders of a cluster whose jobs run as their users. `accounts`: those that
    are tried; without any, only modes are checked."""
    if not cluster.facts.runs_as_users or not isinstance(cluster.dispatcher, SeesFolders):
        return
    if config.checkpoint_storage is None or config.checkpoint_storage.kind is None:
        yield Finding(
            CHECKPOINTS,
            f"jobs run as their users, who cannot write into the master's own {data / 'checkpoints'}",
            "Name a folder that all nodes see in checkpoint_storage, with mode 1777.",
            bad=True,
        )
    roots = list(roots_of(config, manager, job_root))
    try:
        facts = _seen(cluster.dispatcher, roots, None)
        for root in roots[1:]:  # the dispatcher itself checks the job folders
            yield from _of_modes(root, *facts[root.path])
        for account in accounts:
            yield from _as_account(account, roots, _seen(cluster.dispatcher, roots, account))
    except DispatcherError as error:
        yield Finding(f"folders of {cluster.name}", str(error), "Correct this first.", bad=True)
        return
    if not accounts:
        yield Finding(
            f"folders of {cluster.name}",
            "only their modes were checked: no account is linked yet",
            "Run this with --account NAME, the account of a user, when there is one.",
        )


def _seen(
    dispatcher: SeesFolders, roots: Sequence[Root], account: str | None
) -> dict[str, tuple[str, FolderFacts | None]]:
    """Return for each root the folder that decides, and what `account` finds there: a job makes the folder of
    checkpoints below one that exists."""
    facts = dispatcher.folders(sorted({path for root in roots for path in _decisive(root)}), account)
    facts_by_account = {}
    for root in roots:
        there = next((path for path in _decisive(root) if facts.get(path) is not None), root.path)
        facts_by_account[root.path] = there, facts.get(there)
    return facts_by_account


def _decisive(root: Root) -> list[str]:
    path = PurePosixPath(root.path)
    return [str(path), *(map(str, path.parents) if root.subject == CHECKPOINTS else ())]


def _of_modes(root: Root, path: str, facts: FolderFacts | None) -> Iterator[Finding]:
    make = f"mkdir -p {root.path} && chmod 1777 {root.path}"
    if facts is None:
        yield Finding(root.subject, f"{root.path} does not exist", make if root.written else "Make it.", bad=True)
        return
    if not root.written:
        return
    mode = stat.S_IMODE(facts.mode)
    named = f"{path} (mode {mode:04o}, uid {facts.owner})"
    if path != root.path and not mode & 0o022:
        yield Finding(root.subject, f"{root.path} does not exist, and users cannot make it in {named}", make, bad=True)
    elif not mode & 0o022:
        yield Finding(root.subject, f"users cannot make files in {named}", make, bad=True)
    elif mode & 0o002 and not mode & stat.S_ISVTX:
        yield Finding(root.subject, f"users can replace each other's folders in {named}: not sticky", make, bad=True)
    elif not mode & 0o002:
        yield Finding(root.subject, f"{named} can be written by its group", "Users need to be in that group.")
    else:
        yield Finding(root.subject, f"{named} can be written by users")


def _as_account(
    account: str, roots: Sequence[Root], facts_by_account: dict[str, tuple[str, FolderFacts | None]]
) -> Iterator[Finding]:
    for root in roots:
        path, facts = facts_by_account[root.path]
        if facts is None:
            text = f"{account} cannot see {root.path}"
        elif root.written and not facts.writable:
            text = f"{account} cannot make files in {path} (mode {stat.S_IMODE(facts.mode):04o}, uid {facts.owner})"
        elif not root.written and not facts.readable:
            text = f"{account} cannot read {path} (mode {stat.S_IMODE(facts.mode):04o}, uid {facts.owner})"
        else:
            yield Finding(root.subject, f"{account} can {'write to' if root.written else 'read'} {path}")
            continue
        fix = f"chmod 1777 {path}" if root.written else f"chmod a+rx {path}"
        yield Finding(root.subject, text, f"{fix}, and let every folder above it be entered.", bad=True)
