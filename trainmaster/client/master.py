"""The master as the SDK sees it: one method for each call of its REST API."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainmaster.client.artifacts import Checkpoint, Model
from trainmaster.client.asked_trials import AskTell
from trainmaster.client.checkpoint_files import FileSource
from trainmaster.client.context import ContextFolder, collect
from trainmaster.client.custom_search import CustomSearch
from trainmaster.client.errors import FileFault
from trainmaster.client.experiment import Experiment, Trial
from trainmaster.client.experiment_table import ExperimentTable
from trainmaster.client.queue_calls import QueueCalls
from trainmaster.client.resource import PAGE, Json, word
from trainmaster.client.session_calls import SessionCalls
from trainmaster.client.subjects import Subjects
from trainmaster.client.trial_records import TrialRecords

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from trainmaster.client.filters import Condition
    from trainmaster.client.transport import Content

Files = Sequence[Mapping[str, Any]]


class Master(SessionCalls, ExperimentTable, TrialRecords, QueueCalls, Subjects):
    """A master, used as one user; `trainmaster.client.connect` returns one.

    Not thread-safe: use one per thread. Calls that may be repeated are repeated for about two seconds while the master
    does not answer.

    Arguments of several calls:
        experiment_id: Number of the experiment.
        trial_id: Number of the trial.
        uuid: Id of the checkpoint.
    """

    @property
    def url(self) -> str:
        """The master's address in full, such as `http://login1:8080`."""
        return self._http.url

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._http.close()

    # -- experiments ----------------------------------------------------------------------------------------------

    def create_experiment(
        self,
        config: str | Path | Mapping[str, Any],
        files: str | Path | ContextFolder | Files | None = None,
        *,
        includes: Sequence[str | Path] = (),
        activate: bool = True,
        project_id: int | None = None,
        template: str | None = None,
        validate_only: bool = False,
        source: str | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> Experiment:
        """Create an experiment. The call is not repeated when the connection fails, as a second experiment would be
        worse.

        Args:
            config: A file, YAML text, or a mapping.
            files: The folder with the training code, without what its `.detignore` names; or entries made beforehand.
                None sends no files of its own.
            includes: More files and folders, each placed beside the code under its own name.
            activate: False leaves the experiment paused.
            project_id: The project to put it in. None: the one that the configuration names, else "Uncategorized".
            template: Name of a template that the configuration is merged over.
            validate_only: Check the configuration and create nothing; the answer is what would be created.
            source: Where the configuration comes from, for messages about it. Default: the file's name.
            notice: Called with each sentence of the master on what of the configuration has no effect.

        Returns:
            The experiment.

        Raises:
            FileFault: The configuration file cannot be read.
            ClientError: A file to send is missing, unreadable or too large.
            NoSuchThing: There is no such project or template.
        """
        if path := _file(config):
            config, source = _read(path), source or str(path)
        body = {
            "config": config if isinstance(config, str) else json.dumps(config),
            "activate": activate,
            "projectId": project_id or 0,
            "template": template,
            "validateOnly": validate_only,
            "configSource": source,
        }
        if files is None or isinstance(files, str | Path):
            root = None if files is None else Path(files)
            files = collect(root, [Path(path) for path in includes], lambda: int(self.info()["maxContextBytes"]))
        if isinstance(files, ContextFolder):
            from trainmaster.client.git_state import git_state  # reading needs none of what it imports

            state = git_state(files.root) if files.root is not None else None
            sent: Any = files.within({**body, **({} if state is None else {"git": state.to_json()})})
        else:
            sent = {**body, "modelDefinition": list(files)}
        # Not repeated: a second copy of an experiment is worse than an error.
        answer = self._http.request("POST", "/api/v1/experiments", body=sent, retry=False)
        if notice is not None:
            for remark in answer.get("remarks") or ():
                notice(remark)
        return Experiment.parse(answer["experiment"], master=self)

    def custom_search(self, experiment_id: int, *, patience: float | None = None) -> CustomSearch:
        """Be the method of the search of an experiment with a custom searcher.

        Args:
            patience: Seconds to keep trying while the master does not answer; None: DET_PATIENCE, else 600.

        Returns:
            The search: iterate over its questions, and call its operations in the body of the loop.
        """
        return CustomSearch(self._http, experiment_id, patience)

    def ask_tell(self, experiment_id: int, *, patience: float | None = None) -> AskTell:
        """Run the trials of an experiment with `searcher.ask_tell`.

        Args:
            patience: Seconds to keep trying while the master does not answer; None: DET_PATIENCE, else 600.

        Returns:
            Its trials: iterate over them, and tell what each measures.
        """
        return AskTell(self._http, experiment_id, patience)

    def experiment(self, experiment_id: int) -> Experiment:
        """Get an experiment.

        Returns:
            The experiment as it is now.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        raw = self._http.request("GET", f"/api/v1/experiments/{experiment_id}")["experiment"]
        return Experiment.parse(raw, master=self)

    def experiments(
        self,
        *,
        users: Sequence[str] = (),
        archived: bool | None = False,
        project_id: int | None = None,
        limit: int = PAGE,
        offset: int = 0,
        everything: bool = True,
        **where: Any,
    ) -> list[Experiment]:
        """List experiments by ascending id.

        Args:
            users: Only those of these users; empty for all.
            archived: True or False: only (or no) archived ones; None for both.
            project_id: Only those of one project.
            limit: Entries per page.
            offset: Entries to skip.
            everything: Read all pages from `offset` on; False reads one.
            where: More filters, named as in the API: name, labels, states, sortBy ...

        Returns:
            The experiments that match.
        """
        query = {"archived": archived, "users": list(users), "projectId": project_id, **where}
        return [
            Experiment.parse(raw, master=self)
            for raw in self._pages("/api/v1/experiments", "experiments", query, limit, offset, everything)
        ]

    def search(
        self,
        where: Condition | None = None,
        *,
        sort: str = "",
        project_id: int | None = None,
        archived: bool = False,
        limit: int = -1,
    ) -> list[Experiment]:
        """List the experiments for which a condition holds, newest first.

        Args:
            where: A condition made of `column`, `hparam` and `metric`; None for all.
            sort: Columns to sort by, as in `searcherMetricsVal=asc,id=desc`.
            project_id: Only those of one project.
            archived: True includes archived ones.
            limit: Most entries to return; -1 for all.

        Returns:
            The experiments that match.
        """
        from trainmaster.client.filters import written

        wanted = json.dumps(written(where, archived=archived))
        body = {"filter": wanted, "sort": sort, "projectId": project_id, "limit": limit}
        experiments = self._http.request("POST", "/api/v1/experiments-search", body=body)["experiments"]
        return [Experiment.parse(experiment["experiment"], master=self) for experiment in experiments]

    def pause(self, experiment_id: int) -> None:
        """Pause an experiment: its trials save their work and release their resources.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        self._http.request("POST", f"/api/v1/experiments/{experiment_id}/pause", body={})

    def activate(self, experiment_id: int) -> None:
        """Let a paused experiment run again.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        self._http.request("POST", f"/api/v1/experiments/{experiment_id}/activate", body={})

    def cancel(self, experiment_id: int) -> None:
        """End an experiment gracefully: its trials save their work first.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        self._http.request("POST", f"/api/v1/experiments/{experiment_id}/cancel", body={})

    def kill(self, experiment_id: int) -> None:
        """End an experiment at once.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
        """
        self._http.request("POST", f"/api/v1/experiments/{experiment_id}/kill", body={})

    def delete_experiment(self, experiment_id: int) -> None:
        """Delete an experiment with its checkpoints and logs. The master continues after the call has returned.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not delete it.
        """
        self._http.request("DELETE", f"/api/v1/experiments/{experiment_id}")

    def trials(
        self,
        experiment_id: int,
        *,
        limit: int = PAGE,
        offset: int = 0,
        everything: bool = True,
        sort_by: str = "SORT_BY_ID",
    ) -> list[Trial]:
        """List the trials of an experiment.

        Args:
            limit: Entries per page.
            offset: Entries to skip.
            everything: Read all pages from `offset` on; False reads one.
            sort_by: The API's word for the order; by id unless given.

        Returns:
            The trials.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        path = f"/api/v1/experiments/{experiment_id}/trials"
        trials = self._pages(path, "trials", {"sortBy": sort_by}, limit, offset, everything)
        return [Trial.parse(raw, master=self) for raw in trials]

    def count_trials(self, experiment_id: int, states: Sequence[str] = ()) -> int:
        """Count the trials of an experiment.

        Args:
            states: Count only these states, such as RUNNING; empty for all.

        Returns:
            The number of trials.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        query = {"states": [f"STATE_{state}" for state in states], "limit": 1}
        answer = self._http.request("GET", f"/api/v1/experiments/{experiment_id}/trials", query=query)
        return int(answer["pagination"]["total"])

    def checkpoints(self, experiment_id: int, *, best: int | None = None) -> list[Checkpoint]:
        """List the checkpoints of an experiment.

        Args:
            best: Only this many, best first by the searcher's metric. None: all, oldest first.

        Returns:
            The checkpoints.

        Raises:
            NoSuchThing: There is no such experiment.
        """
        path = f"/api/v1/experiments/{experiment_id}/checkpoints"
        if best is not None:
            query = {"sortByAttr": "SORT_BY_SEARCHER_METRIC", "limit": best}
            checkpoints = self._http.request("GET", path, query=query)["checkpoints"]
            return [Checkpoint.parse(raw, master=self) for raw in checkpoints]
        query = {"sortByAttr": "SORT_BY_END_TIME"}
        checkpoints = self._pages(path, "checkpoints", query, PAGE, 0, True)
        return [Checkpoint.parse(raw, master=self) for raw in checkpoints]

    def trial_checkpoints(self, trial_id: int, *, best: bool = False) -> list[Checkpoint]:
        """List the checkpoints of a trial whose files exist.

        Args:
            best: True: best first by the searcher's metric; else oldest first.

        Returns:
            The checkpoints.

        Raises:
            NoSuchThing: There is no such trial.
        """
        query = {"sortByAttr": f"SORT_BY_{'SEARCHER_METRIC' if best else 'END_TIME'}", "states": "STATE_COMPLETED"}
        raw = self._pages(f"/api/v1/trials/{trial_id}/checkpoints", "checkpoints", query, PAGE, 0, True)
        return [Checkpoint.parse(entry, master=self) for entry in raw]

    def preview_search(self, config: Json) -> Json:
        """Simulate the search of a configuration.

        Args:
            config: An experiment configuration as a mapping.

        Returns:
            How many trials of which length the searcher would create.
        """
        return dict(self._http.request("POST", "/api/v1/preview-hp-search", body={"config": config})["summary"])

    # -- trials, checkpoints ------------------------------------------------------------------------------------------

    def trial(self, trial_id: int) -> Trial:
        """Get a trial.

        Returns:
            The trial as it is now.

        Raises:
            NoSuchThing: There is no such trial.
        """
        return Trial.parse(self._http.request("GET", f"/api/v1/trials/{trial_id}")["trial"], master=self)

    def kill_trial(self, trial_id: int) -> None:
        """Kill a trial without a checkpoint.

        Raises:
            NoSuchThing: There is no such trial.
            NotAllowed: The caller may not change it.
        """
        self._http.request("POST", f"/api/v1/trials/{trial_id}/kill", body={})

    def checkpoint(self, uuid: str) -> Checkpoint:
        """Get a checkpoint.

        Returns:
            The checkpoint as it is now.

        Raises:
            NoSuchThing: There is no such checkpoint.
        """
        raw = self._http.request("GET", f"/api/v1/checkpoints/{word(uuid)}")["checkpoint"]
        return Checkpoint.parse(raw, master=self)

    def checkpoint_archive(self, uuid: str) -> AbstractContextManager[Content]:
        """Open the files of a checkpoint as a tar stream from the master. Errors are raised when the stream is entered
        or read.

        Returns:
            A context manager whose value has `read`.

        Raises:
            NoSuchThing: There is no such checkpoint, or its files are gone.
        """
        return self._http.content(f"/checkpoints/{word(uuid)}", accept="application/x-tar")

    def checkpoint_files(self, uuid: str) -> FileSource:
        """Get the ways in which the master gives out the files of a checkpoint.

        Returns:
            The ways. Each may raise NoSuchThing when it is used.
        """
        path = f"/api/x1/checkpoints/{word(uuid)}/files"
        return FileSource(
            archive=lambda: self.checkpoint_archive(uuid),
            signed=lambda query: self._http.request("GET", path, query=query),
        )

    # -- models -------------------------------------------------------------------------------------------------------

    def model(self, name: str) -> Model:
        """Get a model.

        Args:
            name: Name or number of the model.

        Returns:
            The model as it is now.

        Raises:
            NoSuchThing: There is no such model.
        """
        return Model.parse(self.registry.model(name), master=self)

    def models(self, **query: Any) -> list[Model]:
        """List models.

        Args:
            query: Filters, named as in the API: name, labels, workspaceNames, archived, sortBy ...

        Returns:
            The models that match.
        """
        return [Model.parse(raw, master=self) for raw in self.registry.models(**query)]

    def create_model(self, name: str, **fields: Any) -> Model:
        """Create a model in the registry.

        Args:
            name: Name of the model, unique in the registry.
            fields: Named as in the API: description, notes, labels, metadata, workspaceName ...

        Returns:
            The model.
        """
        return Model.parse(self.registry.create_model(name, **fields), master=self)

    def task(self, task_id: str) -> Json:
        """Get a task of any kind.

        Args:
            task_id: Id of a task of any kind.

        Returns:
            The task with its allocations, as the API describes it.

        Raises:
            NoSuchThing: There is no such task.
        """
        return dict(self._http.request("GET", f"/api/v1/tasks/{task_id}")["task"])


def _file(config: str | Path | Mapping[str, Any]) -> Path | None:
    """Return the configuration's file, if it is one: a path, or text that names an existing file."""
    if isinstance(config, Path):
        return config
    if isinstance(config, str) and "\n" not in config and os.path.isfile(config):
        return Path(config)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileFault(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise FileFault(f"{path} is not UTF-8 text.") from None
