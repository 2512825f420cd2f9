"""`Determined`: the SDK's entrance."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Union

from trainmaster.core.sdk import experiments
from trainmaster.core.sdk.checkpoints import Checkpoint
from trainmaster.core.sdk.connection import Connection, quoted, word
from trainmaster.core.sdk.experiments import Experiment, Trial
from trainmaster.core.sdk.metrics import TrialMetrics, reports_of
from trainmaster.core.sdk.models import Model
from trainmaster.core.sdk.words import ExperimentState, ModelSortBy, OrderBy

logger = logging.getLogger("trainmaster.core")


class Determined:
    """The master of this job, as the person who began it.

    Args:
        master: Its address; a job knows it.
        user, password, cert_path, cert_name, noverify: Not needed in a job.

    Raises:
        RuntimeError: This process is in no job.
    """

    def __init__(
        self,
        master: Optional[str] = None,
        user: Optional[str] = None,
        password: Optional[str] = None,
        cert_path: Optional[str] = None,
        cert_name: Optional[str] = None,
        noverify: bool = False,
    ) -> None:
        del cert_path, cert_name, noverify
        self._session = Connection()
        if master is not None and master.rstrip("/") != self._session.url.rstrip("/"):
            logger.warning(
                "the SDK in jobs speaks with the job's own master, %s, not with %s", self._session.url, master
            )
        if user is not None or password is not None:
            logger.info("the SDK in jobs is logged in as the job's owner; user and password are not used")

    def get_session_username(self) -> str:
        """Return the name of the job's owner."""
        return str(self._session.call("GET", "/api/v1/me")["user"]["username"])

    def create_experiment(
        self,
        config: Union[str, Path, Dict[str, Any]],
        model_dir: Union[str, Path, None] = None,
        includes: Optional[Iterable[Union[str, Path]]] = None,
        parent_id: Optional[int] = None,
        project_id: Optional[int] = None,
        template: Optional[str] = None,
    ) -> Experiment:
        """Create an experiment, and start it.

        Args:
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
        return experiments.create(self._session, config, model_dir, includes, parent_id, project_id, template)

    def get_experiment(self, experiment_id: int) -> Experiment:
        """Return an experiment.

        Raises:
            CoreError: There is none of this number, or it may not be seen.
        """
        return Experiment.found(self._session, experiment_id)

    def list_experiments(
        self,
        sort_by: Any = None,
        order_by: Optional[OrderBy] = None,
        experiment_ids: Optional[List[int]] = None,
        labels: Optional[List[str]] = None,
        users: Optional[List[str]] = None,
        states: Optional[List[ExperimentState]] = None,
        name: Optional[str] = None,
        project_id: Optional[int] = None,
    ) -> List[Experiment]:
        """Return the experiments that match."""
        query = {
            "sortBy": word(sort_by),
            "orderBy": word(order_by),
            "experimentIdFilter.incl": experiment_ids,
            "labels": labels,
            "users": users,
            "states": None if states is None else [word(state) for state in states],
            "name": name,
            "projectId": project_id,
        }
        rows = self._session.rows("/api/v1/experiments", "experiments", query)
        return [Experiment.of(self._session, found) for found in rows]

    def get_trial(self, trial_id: int) -> Trial:
        """Return a trial.

        Raises:
            CoreError: There is none of this number, or it may not be seen.
        """
        trial = Trial(trial_id, self._session)
        trial.reload()
        return trial

    def get_checkpoint(self, uuid: str) -> Checkpoint:
        """Return a checkpoint.

        Raises:
            CoreError: There is none of this uuid, or it may not be seen.
        """
        checkpoint = Checkpoint(self._session, uuid)
        checkpoint.reload()
        return checkpoint

    def create_model(
        self,
        name: str,
        description: Optional[str] = "",
        metadata: Optional[Dict[str, Any]] = None,
        labels: Optional[List[str]] = None,
        workspace_name: Optional[str] = None,
    ) -> Model:
        """Add a name to the model registry.

        Raises:
            CoreError: The name is taken, or not allowed.
        """
        body: Dict[str, Any] = {
            "name": name,
            "description": description or "",
            "metadata": metadata or {},
            "labels": labels or [],
        }
        if workspace_name is not None:
            body["workspaceName"] = workspace_name
        return Model.of(self._session, self._session.call("POST", "/api/v1/models", body)["model"])

    def get_model(self, identifier: Union[str, int]) -> Model:
        """Return a model, by its name or number.

        Raises:
            CoreError: There is none.
        """
        found = self._session.call("GET", "/api/v1/models/" + quoted(identifier))["model"]
        return Model.of(self._session, found)

    def get_model_by_id(self, model_id: int) -> Model:
        """Return a model, by its number.

        Raises:
            CoreError: There is none.
        """
        return self.get_model(model_id)

    def list_models(
        self,
        sort_by: ModelSortBy = ModelSortBy.NAME,
        order_by: OrderBy = OrderBy.ASCENDING,
        name: Optional[str] = None,
        description: Optional[str] = None,
        model_id: Optional[int] = None,
        workspace_names: Optional[List[str]] = None,
        workspace_ids: Optional[List[int]] = None,
    ) -> List[Model]:
        """Return the models that match."""
        query = {
            "sortBy": word(sort_by),
            "orderBy": word(order_by),
            "name": name,
            "description": description,
            "id": model_id,
            "workspaceNames": workspace_names,
            "workspaceIds": workspace_ids,
        }
        return [Model.of(self._session, found) for found in self._session.rows("/api/v1/models", "models", query)]

    get_models = list_models

    def get_model_labels(self) -> List[str]:
        """Return the labels of models, the most frequent first."""
        return [str(label) for label in self._session.call("GET", "/api/v1/model/labels")["labels"]]

    def iter_trials_metrics(self, trial_ids: Sequence[int], group: str) -> Iterator[TrialMetrics]:
        """Yield the reports of trials of a group, such as `validation`."""
        return reports_of(self._session, trial_ids, group)

    stream_trials_metrics = iter_trials_metrics

    def stream_trials_training_metrics(self, trial_ids: Sequence[int]) -> Iterator[TrialMetrics]:
        """Yield the reports of training of trials."""
        return self.iter_trials_metrics(trial_ids, "training")

    def stream_trials_validation_metrics(self, trial_ids: Sequence[int]) -> Iterator[TrialMetrics]:
        """Yield the reports of validation of trials."""
        return self.iter_trials_metrics(trial_ids, "validation")
