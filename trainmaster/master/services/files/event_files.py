"""Finds TensorBoard event files of experiments and trials: beside the checkpoints, in folders and object stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from trainmaster.config.environment import BindMount
from trainmaster.master.db.tables import Experiment, Project, Trial
from trainmaster.master.services.access.identity import Caller
from trainmaster.master.services.access.permissions import Permission
from trainmaster.master.services.context import Settings
from trainmaster.master.services.errors import Invalid, NotFound
from trainmaster.master.services.files.object_stores import key_of
from trainmaster.master.services.files.user_files import events_folder
from trainmaster.master.values.storage import StorageRef
from trainmaster.master.values.stored import Json
from trainmaster.master.values.tasks import ShownEvents

STORED = "store:"
"""What the places of event files in object stores begin with; then the experiment, and the path below its files."""
MOST_TRIALS = 100  # of one experiment, as Determined has it: the best ones


def events_key(settings: Settings, storage: StorageRef, experiment_id: int) -> str:
    """Return the key in an object store below which an experiment's event files are, `trial/<id>/...`."""
    return key_of(storage, settings.cluster_id, "tensorboard", "experiment", str(experiment_id))


def shown(
    session: Session, settings: Settings, caller: Caller, experiment_ids: Sequence[int], trial_ids: Sequence[int]
) -> ShownEvents:
    """Return what a TensorBoard of these shows. Raises Invalid, NotFound, Forbidden."""
    if not experiment_ids and not trial_ids:
        raise Invalid("Name what to show: experimentIds or trialIds.")
    folders: dict[str, str] = {}
    unmounted: list[str] = []  # names of folders that the user's own mounts provide
    for number in experiment_ids:
        row = session.get(Experiment, number)
        if row is None:
            raise NotFound(f"There is no experiment {number}.")
        folder, ours = _folder(session, settings, caller, row)
        before = set(folders)
        if row.num_trials <= MOST_TRIALS:
            folders[f"exp_{number}"] = f"{folder}/trial"  # the whole folder: future trials are shown as well
        else:
            folders |= {f"exp_{number}_trial_{trial}": f"{folder}/trial/{trial}" for trial in _best(session, row)}
        unmounted += [] if ours else sorted(set(folders) - before)
    for number in trial_ids:
        trial = session.get(Trial, number)
        if trial is None:
            raise NotFound(f"There is no trial {number}.")
        row = session.get_one(Experiment, trial.experiment_id)
        folder, ours = _folder(session, settings, caller, row)
        name = f"exp_{row.id}_trial_{number}"
        folders[name] = f"{folder}/trial/{number}"
        unmounted += [] if ours else [name]
    numbers = {"experiment_ids": list(experiment_ids), "trial_ids": list(trial_ids)}
    return ShownEvents({**numbers, "folders": folders, "unmounted": unmounted})


def mounts(given: Iterable[BindMount], shows: ShownEvents) -> list[Json]:
    """Return the mounts of a TensorBoard: the folders that it reads, under their own paths, read-only. A `directory`
    storage is a path in containers, which a mount of the user's provides."""
    there = [mount.model_dump() for mount in given]
    roots = {
        str(_root(Path(path)))
        for name, path in shows.folders.items()
        if name not in shows.unmounted and not path.startswith(STORED)
    }
    known = {mount.container_path for mount in given}
    return there + [
        {"host_path": root, "container_path": root, "read_only": True, "propagation": "rprivate"}
        for root in sorted(roots - known)
    ]


def _root(folder: Path) -> Path:
    """Return the storage above a folder of event files, which exists before the first of them is written."""
    return folder.parents[[parent.name for parent in folder.parents].index("tensorboard") + 2]


def _folder(session: Session, settings: Settings, caller: Caller, row: Experiment) -> tuple[str, bool]:
    """Return the place of its event files, and whether the master mounts it. Raises Invalid, Forbidden."""
    home = session.get_one(Project, row.project_id).workspace_id
    caller.require(Permission.VIEW_EXPERIMENT_ARTIFACTS, home, f"There is no experiment {row.id}.")
    storage = row.config.checkpoint_storage or StorageRef({})
    if storage.in_store:
        return f"{STORED}{row.id}", True
    folder = events_folder(settings, storage, row.id)
    if folder is None:
        raise Invalid(f"Experiment {row.id} keeps its files where the master does not look: {storage.type!r} storage.")
    return folder, storage.type == "shared_fs"


def _best(session: Session, row: Experiment) -> list[int]:
    column = Trial.__table__.c.searcher_metric
    order = column.asc() if row.smaller_is_better else column.desc()
    query = select(Trial.id).where(Trial.experiment_id == row.id).order_by(order.nulls_last(), Trial.id)
    return list(session.scalars(query.limit(MOST_TRIALS)))
