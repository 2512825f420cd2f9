"""`Checkpoint`: its metadata, its files, and the lists that it stands in."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any, Dict, Iterator, List, Optional, Union

from trainmaster.core.errors import CheckpointError
from trainmaster.core.file_tree import copy_files, list_files
from trainmaster.core.sdk.connection import Connection, member, quoted, word
from trainmaster.core.sdk.metrics import TrialMetrics
from trainmaster.core.sdk.words import CheckpointSortBy, CheckpointState, DownloadMode, OrderBy
from trainmaster.core.storage import open_storage


class Checkpoint:
    """A checkpoint.

    Attributes:
        uuid: Its id.
        metadata: What was stored with it, `steps_completed` among it.
        resources: Its files: the path, and the size in bytes.
        state: A CheckpointState.
        training: Of which trial and experiment it is, with their configuration and hyperparameters; empty values for
            one that no trial made.
        report_time: When it was stored, as ISO 8601.
    """

    def __init__(self, session: Connection, uuid: str) -> None:
        self._session = session
        self.uuid = uuid
        self.metadata: Dict[str, Any] = {}
        self.resources: Dict[str, int] = {}
        self.state: Any = None
        self.training: Any = None
        self.report_time: Optional[str] = None
        self.task_id: Optional[str] = None
        self.storage_id: Optional[int] = None

    @classmethod
    def of(cls, session: Connection, found: Dict[str, Any]) -> Checkpoint:
        """Make one of the API's answer."""
        checkpoint = cls(session, found["uuid"])
        checkpoint._take(found)
        return checkpoint

    def reload(self) -> None:
        """Ask the master anew.

        Raises:
            CoreError: There is no such checkpoint, or it may not be seen.
        """
        self._take(self._session.call("GET", "/api/v1/checkpoints/" + quoted(self.uuid))["checkpoint"])

    def download(self, path: Optional[str] = None, mode: DownloadMode = DownloadMode.AUTO) -> str:
        """Copy the files, with `metadata.json`.

        Args:
            path: The folder to copy into. Default: `checkpoints/UUID`. What is there already stays.
            mode: From the storage where this process can read it, or through the master.

        Returns:
            The folder.

        Raises:
            CheckpointError: The checkpoint is not complete, or its storage cannot be read from here.
            CoreError: The master refuses.
        """
        if self.state is None:
            self.reload()
        if self.state not in (CheckpointState.COMPLETED, CheckpointState.PARTIALLY_DELETED):
            raise CheckpointError("checkpoint %s has nothing to download: its state is %s" % (self.uuid, self.state))
        target = Path("checkpoints", self.uuid) if path is None else Path(path)
        target.mkdir(parents=True, exist_ok=True)
        if not (target / "metadata.json").is_file():
            if DownloadMode(mode) is DownloadMode.MASTER or not self._copy(target, DownloadMode(mode)):
                with tempfile.TemporaryFile(dir=str(target)) as archive:
                    self._session.download("/checkpoints/" + quoted(self.uuid), archive)
                    archive.seek(0)
                    self._unpack(archive, target)
            self.write_metadata_file(str(target / "metadata.json"))
        return str(target)

    def write_metadata_file(self, path: str) -> None:
        """Write the metadata as JSON."""
        Path(path).write_text(json.dumps(self.metadata, indent=2), encoding="utf-8")

    def add_metadata(self, metadata: Dict[str, Any]) -> None:
        """Add entries to the metadata, or replace them.

        Raises:
            CoreError: The master refuses.
        """
        self._set_metadata({**self._current_metadata(), **metadata})

    def remove_metadata(self, keys: List[str]) -> None:
        """Remove entries from the metadata; those that are not there are passed over.

        Raises:
            CoreError: The master refuses.
        """
        self._set_metadata({key: value for key, value in self._current_metadata().items() if key not in keys})

    def delete(self) -> None:
        """Let the master delete the files.

        Raises:
            CoreError: The master refuses: a model's version cannot be deleted.
        """
        self._session.call("DELETE", "/api/v1/checkpoints", {"checkpointUuids": [self.uuid]})

    def remove_files(self, globs: List[str]) -> None:
        """Let the master delete the files that match.

        Raises:
            CoreError: The master refuses.
        """
        body = {"checkpointUuids": [self.uuid], "checkpointGlobs": globs}
        self._session.call("POST", "/api/v1/checkpoints/rm", body)

    def get_metrics(self, group: Optional[str] = None) -> Iterator[TrialMetrics]:
        """Yield what trials have reported that use this checkpoint."""
        found = self._session.call(
            "GET", "/api/v1/checkpoints/%s/metrics" % quoted(self.uuid), query={"metricGroup": group}
        )
        return (TrialMetrics.of(each, group) for each in found["metrics"])

    def __repr__(self) -> str:
        return "Checkpoint(uuid=%r)" % self.uuid

    def _take(self, found: Dict[str, Any]) -> None:
        self.metadata = found.get("metadata") or {}
        self.resources = {name: int(size) for name, size in (found.get("resources") or {}).items()}
        self.state = member(CheckpointState, found.get("state"))
        self.training = _Training(found.get("training") or {})
        self.report_time = found.get("reportTime")
        self.task_id = found.get("taskId")
        self.storage_id = found.get("storageId")

    def _current_metadata(self) -> Dict[str, Any]:
        self.reload()
        return self.metadata

    def _set_metadata(self, metadata: Dict[str, Any]) -> None:
        body = {"checkpoint": {"uuid": self.uuid, "metadata": metadata}}
        self._session.call("POST", "/api/v1/checkpoints/%s/metadata" % quoted(self.uuid), body)
        self.metadata = metadata

    def _copy(self, target: Path, mode: DownloadMode) -> bool:
        """Copy from the storage; False where this process cannot read it."""
        storage = (self.training.experiment_config or {}).get("checkpoint_storage")
        try:
            source = open_storage(storage).existing(self.uuid) if storage else None
            if source is not None and os.access(str(source), os.R_OK | os.X_OK):
                copy_files(source, target, list_files(source), {})
                return True
            raise CheckpointError("the storage of checkpoint %s cannot be read from here" % self.uuid)
        except (CheckpointError, OSError) as error:
            if mode is DownloadMode.DIRECT:
                raise CheckpointError(str(error)) from error
            return False

    def _unpack(self, archive: IO[bytes], target: Path) -> None:
        top = target.resolve()
        with tarfile.open(fileobj=archive, mode="r:gz") as tar:
            for entry in tar:
                name = entry.name
                place = (target / name).resolve()
                if top != place and top not in place.parents:
                    raise CheckpointError(
                        "the archive of checkpoint %s has a path outside of it: %s" % (self.uuid, name)
                    )
                if entry.isdir():
                    place.mkdir(parents=True, exist_ok=True)
                    continue
                content = tar.extractfile(entry) if entry.isfile() else None
                if content is not None:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    with place.open("wb") as file:
                        shutil.copyfileobj(content, file)


class _Training:
    """What trained a checkpoint."""

    def __init__(self, found: Dict[str, Any]) -> None:
        self.experiment_config: Dict[str, Any] = found.get("experimentConfig") or {}
        self.experiment_id: Optional[int] = found.get("experimentId")
        self.trial_id: Optional[int] = found.get("trialId")
        self.hparams: Dict[str, Any] = found.get("hparams") or {}
        self.validation_metrics: Dict[str, Any] = found.get("validationMetrics") or {}


def list_of(
    session: Connection,
    path: str,
    sort_by: Union[str, CheckpointSortBy, None],
    order_by: Optional[OrderBy],
    most: Optional[int] = None,
) -> List[Checkpoint]:
    """Return the checkpoints of a trial or an experiment.

    Args:
        session: With the master.
        path: Of the list.
        sort_by: An order, or the name of a metric of validation. Default: the searcher's metric, the best first.
        order_by: Given exactly where `sort_by` is.
        most: How many.

    Raises:
        ValueError: Only one of `sort_by` and `order_by` is given.
    """
    if (sort_by is None) != (order_by is None):
        raise ValueError("sort_by and order_by must be given together, or neither")
    by_metric = isinstance(sort_by, str)
    query = {
        "sortByAttr": None if by_metric else word(sort_by or CheckpointSortBy.SEARCHER_METRIC),
        "sortByMetric": sort_by if by_metric else None,
        "orderBy": word(order_by),
    }
    return [Checkpoint.of(session, found) for found in session.rows(path, "checkpoints", query, most)]


def best_of(
    session: Connection,
    path: str,
    sort_by: Optional[str],
    smaller_is_better: Optional[bool],
    most: Optional[int] = None,
) -> List[Checkpoint]:
    """Return the best checkpoints of a trial or an experiment: by the searcher's metric, or by another one.

    Raises:
        ValueError: There is none.
    """
    order = None if sort_by is None else OrderBy.ASCENDING if smaller_is_better else OrderBy.DESCENDING
    found = list_of(session, path, sort_by, order, most)
    if not found:
        raise ValueError("there is no complete checkpoint with such a metric")
    return found
