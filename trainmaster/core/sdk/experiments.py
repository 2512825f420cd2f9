"""`Experiment` and `Trial`, and how an experiment is created from a job."""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Union

from trainmaster.core.sdk.checkpoints import Checkpoint, best_of, list_of
from trainmaster.core.sdk.connection import Connection, member, word
from trainmaster.core.sdk.metrics import TrialMetrics, reports_of
from trainmaster.core.sdk.words import CheckpointSortBy, ExperimentState, OrderBy, TrialSortBy, TrialState

MOST_BYTES = 95 * 1024 * 1024  # that a master takes with an experiment
_OVER = frozenset({ExperimentState.COMPLETED, ExperimentState.CANCELED, ExperimentState.ERROR, ExperimentState.DELETED})


class Experiment:
    """An experiment.

    Attributes:
        id: Its number.
        config: Its configuration, with all defaults.
        name, description, notes, labels: What people say of it.
        state: An ExperimentState.
        archived, progress, project_id, workspace_id: As the master has them.
    """

    def __init__(self, experiment_id: int, session: Connection) -> None:
        self._session = session
        self.id = experiment_id
        self.config: Dict[str, Any] = {}
        self.name = ""
        self.description = ""
        self.notes = ""
        self.labels: Set[str] = set()
        self.state: Any = None
        self.archived = False
        self.progress: Optional[float] = None
        self.project_id: Optional[int] = None
        self.workspace_id: Optional[int] = None

    @classmethod
    def found(cls, session: Connection, experiment_id: int) -> Experiment:
        """Ask the master for one.

        Raises:
            CoreError: There is no such experiment, or it may not be seen.
        """
        experiment = cls(experiment_id, session)
        experiment.reload()
        return experiment

    @classmethod
    def of(cls, session: Connection, found: Dict[str, Any]) -> Experiment:
        """Make one of the API's answer."""
        experiment = cls(found["id"], session)
        experiment._take(found)
        return experiment

    def reload(self) -> None:
        """Ask the master anew.

        Raises:
            CoreError: There is no such experiment, or it may not be seen.
        """
        self._take(self._session.call("GET", self._path)["experiment"])

    def set_name(self, name: str) -> None:
        """Replace the name."""
        self._change(name=name)

    def set_description(self, description: str) -> None:
        """Replace the description."""
        self._change(description=description)

    def set_notes(self, notes: str) -> None:
        """Replace the notes."""
        self._change(notes=notes)

    def set_labels(self, labels: Set[str]) -> None:
        """Replace the labels."""
        self._change(labels=sorted(labels))

    def add_label(self, label: str) -> None:
        """Add a label."""
        self.reload()
        self.set_labels({*self.labels, label})

    def remove_label(self, label: str) -> None:
        """Remove a label; one that is not there is passed over."""
        self.reload()
        self.set_labels(self.labels - {label})

    def activate(self) -> None:
        """Let it go on."""
        self._do("activate")

    def archive(self) -> None:
        """Hide it in lists."""
        self._do("archive")
        self.archived = True

    def unarchive(self) -> None:
        """Undo `archive`."""
        self._do("unarchive")
        self.archived = False

    def cancel(self) -> None:
        """End it; its trials save their work first."""
        self._do("cancel")

    def kill(self) -> None:
        """End it at once."""
        self._do("kill")

    def pause(self) -> None:
        """Let its trials save their work and leave."""
        self._do("pause")

    def delete(self) -> None:
        """Delete it, with its checkpoints."""
        self._session.call("DELETE", self._path)

    def wait(self, interval: float = 5.0) -> Any:
        """Wait until it has ended.

        Args:
            interval: Seconds between two looks.

        Returns:
            How, an ExperimentState. A pause is no end.

        Raises:
            MasterAway: The master is away for longer than a minute.
        """
        while True:
            self.reload()
            if self.state in _OVER:
                return self.state
            time.sleep(interval)

    def await_first_trial(self, interval: float = 0.1) -> Trial:
        """Wait until it has a trial.

        Args:
            interval: Seconds between two looks.
        """
        while True:
            found = next(self.iter_trials(limit=1), None)
            if found is not None:
                return found
            time.sleep(interval)

    def iter_trials(
        self,
        sort_by: TrialSortBy = TrialSortBy.ID,
        order_by: OrderBy = OrderBy.ASCENDING,
        limit: Optional[int] = None,
    ) -> Iterator[Trial]:
        """Yield its trials; `limit`: how many."""
        query = {"sortBy": word(sort_by), "orderBy": word(order_by)}
        for found in self._session.rows(self._path + "/trials", "trials", query, limit):
            yield Trial.of(self._session, found)

    def list_trials(self, sort_by: TrialSortBy = TrialSortBy.ID, order_by: OrderBy = OrderBy.ASCENDING) -> List[Trial]:
        """Return its trials."""
        return list(self.iter_trials(sort_by, order_by))

    get_trials = list_trials

    def list_checkpoints(
        self,
        sort_by: Union[str, CheckpointSortBy, None] = None,
        order_by: Optional[OrderBy] = None,
        max_results: Optional[int] = None,
    ) -> List[Checkpoint]:
        """Return checkpoints of its trials: by the searcher's metric the best first, or in another order.

        Raises:
            ValueError: Only one of `sort_by` and `order_by` is given.
        """
        return list_of(self._session, self._path + "/checkpoints", sort_by, order_by, max_results)

    def top_checkpoint(self, sort_by: Optional[str] = None, smaller_is_better: Optional[bool] = None) -> Checkpoint:
        """Return the best checkpoint, by the searcher's metric or another one.

        Raises:
            ValueError: There is none.
        """
        return self.top_n_checkpoints(1, sort_by, smaller_is_better)[0]

    def top_n_checkpoints(
        self, limit: int, sort_by: Optional[str] = None, smaller_is_better: Optional[bool] = None
    ) -> List[Checkpoint]:
        """Return the best checkpoint of each of the best trials, at most `limit`.

        Raises:
            ValueError: There is none.
        """
        best: Dict[Any, Checkpoint] = {}
        for each in best_of(self._session, self._path + "/checkpoints", sort_by, smaller_is_better):
            best.setdefault(each.training.trial_id, each)
        return list(best.values())[:limit]

    def download_code(self, output_dir: Optional[str] = None) -> str:
        """Write the files that were sent with it to `exp-ID_model_def.tar.gz`.

        Args:
            output_dir: Where. Default: the working folder.

        Returns:
            The archive's path.
        """
        found = self._session.call("GET", self._path + "/model_def")
        folder = Path(output_dir).expanduser() if output_dir else Path()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / ("exp-%d_model_def.tar.gz" % self.id)
        path.write_bytes(base64.b64decode(found["b64Tgz"]))
        return str(path)

    def __repr__(self) -> str:
        return "Experiment(id=%d)" % self.id

    @property
    def _path(self) -> str:
        return "/api/v1/experiments/%d" % self.id

    def _do(self, what: str) -> None:
        self._session.call("POST", "%s/%s" % (self._path, what))

    def _change(self, **fields: Any) -> None:
        self._session.call("PATCH", self._path, fields)
        self.reload()

    def _take(self, found: Dict[str, Any]) -> None:
        self.config = found.get("config") or self.config
        self.name = found.get("name") or ""
        self.description = found.get("description") or ""
        self.notes = found.get("notes") or ""
        self.labels = set(found.get("labels") or [])
        self.state = member(ExperimentState, found.get("state"))
        self.archived = bool(found.get("archived"))
        self.progress = found.get("progress")
        self.project_id = found.get("projectId")
        self.workspace_id = found.get("workspaceId")


class Trial:
    """A trial.

    Attributes:
        id: Its number.
        experiment_id: Of its experiment.
        hparams: Its hyperparameters.
        state: A TrialState.
        summary_metrics: Of each metric of each group: the first and last value, minimum, maximum, mean.
    """

    def __init__(self, trial_id: int, session: Connection) -> None:
        self._session = session
        self.id = trial_id
        self.experiment_id: Optional[int] = None
        self.hparams: Dict[str, Any] = {}
        self.state: Any = None
        self.summary_metrics: Dict[str, Any] = {}

    @classmethod
    def of(cls, session: Connection, found: Dict[str, Any]) -> Trial:
        """Make one of the API's answer."""
        trial = cls(found["id"], session)
        trial._take(found)
        return trial

    def reload(self) -> None:
        """Ask the master anew.

        Raises:
            CoreError: There is no such trial, or it may not be seen.
        """
        self._take(self._session.call("GET", "/api/v1/trials/%d" % self.id)["trial"])

    def kill(self) -> None:
        """End it."""
        self._session.call("POST", "/api/v1/trials/%d/kill" % self.id)

    def get_experiment(self) -> Experiment:
        """Return its experiment."""
        if self.experiment_id is None:
            self.reload()
        return Experiment.found(self._session, int(self.experiment_id or 0))

    def list_checkpoints(
        self,
        sort_by: Union[str, CheckpointSortBy, None] = None,
        order_by: Optional[OrderBy] = None,
        max_results: Optional[int] = None,
    ) -> List[Checkpoint]:
        """Return checkpoints: by the searcher's metric the best first, or in another order.

        Raises:
            ValueError: Only one of `sort_by` and `order_by` is given.
        """
        return list_of(self._session, self._checkpoints, sort_by, order_by, max_results)

    def get_checkpoints(
        self, sort_by: Union[str, CheckpointSortBy, None] = None, order_by: Optional[OrderBy] = None
    ) -> List[Checkpoint]:
        """Return checkpoints: `list_checkpoints` by an older name."""
        return self.list_checkpoints(sort_by, order_by)

    def top_checkpoint(self, sort_by: Optional[str] = None, smaller_is_better: Optional[bool] = None) -> Checkpoint:
        """Return the best checkpoint, by the searcher's metric or another one.

        Raises:
            ValueError: There is none.
        """
        return best_of(self._session, self._checkpoints, sort_by, smaller_is_better, 1)[0]

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: Optional[str] = None,
        sort_by: Optional[str] = None,
        smaller_is_better: Optional[bool] = None,
    ) -> Checkpoint:
        """Return the newest checkpoint, the best one, or the one of a uuid.

        Raises:
            ValueError: Not exactly one of the three is asked for, or there is none.
        """
        if [latest, best, uuid is not None].count(True) != 1:
            raise ValueError("exactly one of latest, best and uuid must be given")
        if uuid is not None:
            checkpoint = Checkpoint(self._session, uuid)
            checkpoint.reload()
            return checkpoint
        if best:
            return self.top_checkpoint(sort_by, smaller_is_better)
        found = self.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESCENDING, 1)
        if not found:
            raise ValueError("trial %d has no checkpoint" % self.id)
        return found[0]

    def iter_metrics(self, group: str) -> Iterator[TrialMetrics]:
        """Yield its reports of a group, such as `validation`."""
        return reports_of(self._session, [self.id], group)

    stream_metrics = iter_metrics

    def stream_training_metrics(self) -> Iterator[TrialMetrics]:
        """Yield its reports of training."""
        return self.iter_metrics("training")

    def stream_validation_metrics(self) -> Iterator[TrialMetrics]:
        """Yield its reports of validation."""
        return self.iter_metrics("validation")

    def iter_logs(
        self, follow: bool = False, *, head: Optional[int] = None, tail: Optional[int] = None
    ) -> Iterator[str]:
        """Yield lines of its log.

        Args:
            follow: Not here: a job that follows another one's log waits for nothing.
            head: The first lines only.
            tail: The last lines only.

        Raises:
            ValueError: `follow` is set, or both of the others are.
        """
        if follow:
            raise ValueError("the SDK in jobs follows no log: read it again, or wait() for the experiment")
        if head is not None and tail is not None:
            raise ValueError("head and tail cannot both be given")
        query = {"limit": head if tail is None else tail, "orderBy": None if tail is None else "ORDER_BY_DESC"}
        lines = [str(line["message"]) for line in self._session.stream("/api/v1/trials/%d/logs" % self.id, query)]
        return iter(lines if tail is None else lines[::-1])

    logs = iter_logs

    def __repr__(self) -> str:
        return "Trial(id=%d)" % self.id

    @property
    def _checkpoints(self) -> str:
        return "/api/v1/trials/%d/checkpoints" % self.id

    def _take(self, found: Dict[str, Any]) -> None:
        self.experiment_id = found["experimentId"]
        self.hparams = found.get("hparams") or {}
        self.state = member(TrialState, found.get("state"))
        self.summary_metrics = found.get("summaryMetrics") or {}


def create(
    session: Connection,
    config: Union[str, Path, Dict[str, Any]],
    model_dir: Union[str, Path, None] = None,
    includes: Optional[Iterable[Union[str, Path]]] = None,
    parent_id: Optional[int] = None,
    project_id: Optional[int] = None,
    template: Optional[str] = None,
) -> Experiment:
    """Create an experiment, and start it.

    Args:
        session: With the master.
        config: The configuration, or the file that has it.
        model_dir: The folder whose content is sent.
        includes: Files and folders that are sent beside it.
        parent_id: The experiment that this one continues.
        project_id: Where it belongs.
        template: A template's name.

    Raises:
        ValueError: What is to be sent is missing or too large, or has a `.detignore`.
        CoreError: The master refuses.
    """
    text = json.dumps(config) if isinstance(config, dict) else Path(config).read_text(encoding="utf-8")
    body: Dict[str, Any] = {"config": text, "activate": True, "modelDefinition": _files(model_dir, includes or ())}
    for name, value in (("parentId", parent_id), ("projectId", project_id), ("template", template)):
        if value is not None:
            body[name] = value
    return Experiment.of(session, session.call("POST", "/api/v1/experiments", body)["experiment"])


def _files(model_dir: Union[str, Path, None], includes: Iterable[Union[str, Path]]) -> List[Dict[str, Any]]:
    entries: List[Dict[str, Any]] = []
    for base, prefix in [(model_dir, "")] * (model_dir is not None) + [
        (each, Path(each).resolve().name) for each in includes
    ]:
        root = Path(str(base))
        if not root.exists():
            raise ValueError("%s does not exist" % root)
        if (root / ".detignore").exists():
            raise ValueError("%s has a .detignore, which the SDK in jobs does not read: send another folder" % root)
        if root.is_file():
            entries.append(_entry(root, root.name))
            continue
        if prefix:
            entries.append(_entry(root, prefix))
        for folder, names, files in os.walk(str(root)):
            for name in sorted(names) + sorted(files):
                path = Path(folder, name)
                entries.append(_entry(path, (Path(prefix) / path.relative_to(root)).as_posix()))
    size = sum(len(entry["content"]) * 3 // 4 for entry in entries)
    if size > MOST_BYTES:
        raise ValueError("the files to send have %.1f MB; at most 95 are taken" % (size / 2**20))
    return entries


def _entry(path: Path, name: str) -> Dict[str, Any]:
    status = path.stat()
    folder = path.is_dir()
    return {
        "path": name,
        "type": ord("5" if folder else "0"),  # of tar
        "content": "" if folder else base64.b64encode(path.read_bytes()).decode("ascii"),
        "mtime": str(int(status.st_mtime)),
        "mode": status.st_mode & 0o7777,
        "uid": 0,
        "gid": 0,
    }
