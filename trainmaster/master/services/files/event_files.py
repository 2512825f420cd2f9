"""Finds TensorBoard event files of experiments and trials: beside the checkpoints, in storage that is a file system."""

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
from trainmaster.master.services.files.user_files import events_folder
from trainmaster.master.values.storage import StorageRef
from trainmaster.master.values.stored import Json
from trainmaster.master.values.tasks import ShownEvents

MOST_TRIALS = 100  # of one experiment, as Determined has it: the best ones


def folder_of(settings: Settings, storage: StorageRef, experiment_id: int) -> Path | None:
    """Return the event folder of an experiment, with a folder `trial/<id>` for each trial; None in storage that is not
    a file system."""
    folder = events_folder(settings, storage, experiment_id)
    return Path(folder) if folder else None


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
        before, folder = set(folders), folder / "trial"
        if row.num_trials <= MOST_TRIALS:
            folders[f"exp_{number}"] = str(folder)  # the whole folder: future trials are shown as well
        else:
            folders |= {f"exp_{number}_trial_{trial}": str(folder / str(trial)) for trial in _best(session, row)}
        unmounted += [] if ours else sorted(set(folders) - before)
    for number in trial_ids:
        trial = session.get(Trial, number)
        if trial is None:
            raise NotFound(f"There is no trial {number}.")
        row = session.get_one(Experiment, trial.experiment_id)
        folder, ours = _folder(session, settings, caller, row)
        name = f"exp_{row.id}_trial_{number}"
        folders[name] = str(folder / "trial" / str(number))
        unmounted += [] if ours else [name]
    numbers = {"experiment_ids": list(experiment_ids), "trial_ids": list(trial_ids)}
    return ShownEvents({**numbers, "folders": folders, "unmounted": unmounted})


def mounts(given: Iterable[BindMount], shows: ShownEvents) -> list[Json]:
    """Return the mounts of a TensorBoard: the folders that it reads, under their own paths, read-only. A `directory`
    storage is a path in containers, which a mount of the user's provides."""
    there = [mount.model_dump() for mount in given]
    roots = {str(_root(Path(path))) for name, path in shows.folders.items() if name not in shows.unmounted}
    known = {mount.container_path for mount in given}
    return there + [
        {"host_path": root, "container_path": root, "read_only": True, "propagation": "rprivate"}
        for root in sorted(roots - known)
    ]


def _root(folder: Path) -> Path:
    """Return the storage above a folder of event files, which exists before the first of them is written."""
    return folder.parents[[parent.name for parent in folder.parents].index("tensorboard") + 2]


def _folder(session: Session, settings: Settings, caller: Caller, row: Experiment) -> tuple[Path, bool]:
    """Return the folder of its event files, and whether the master mounts it. Raises Invalid, Forbidden."""
    home = session.get_one(Project, row.project_id).workspace_id
    caller.require(Permission.VIEW_EXPERIMENT_ARTIFACTS, home, f"There is no experiment {row.id}.")
    storage = row.config.checkpoint_storage or StorageRef({})
    folder = folder_of(settings, storage, row.id)
    if folder is None:
        raise Invalid(
            f"Experiment {row.id} keeps its files in {storage.type!r} storage; TensorBoards here read from "
            "shared_fs and directory only."
        )
    return folder, storage.type == "shared_fs"


def _best(session: Session, row: Experiment) -> list[int]:
    column = Trial.__table__.c.searcher_metric
    order = column.asc() if row.smaller_is_better else column.desc()
    query = select(Trial.id).where(Trial.experiment_id == row.id).order_by(order.nulls_last(), Trial.id)
    return list(session.scalars(query.limit(MOST_TRIALS)))
