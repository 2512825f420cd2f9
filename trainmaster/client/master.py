"""The master as the SDK sees it: one method for each call of its REST API."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from trainmaster.client.artifacts import Checkpoint, Model
from trainmaster.client.context import ContextFolder, collect
from trainmaster.client.errors import FileFault, MasterUnreachable
from trainmaster.client.experiment import PATIENCE, Experiment, Trial
from trainmaster.client.models import LogLine, MetricsReport, QueuedJob, StoryEvent
from trainmaster.client.resource import PAGE, Resource

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from trainmaster.client import wire
    from trainmaster.client.cluster import ClusterView
    from trainmaster.client.experiments import Experiments
    from trainmaster.client.filters import Condition
    from trainmaster.client.model_registry import ModelRegistry
    from trainmaster.client.organisation import Organisation
    from trainmaster.client.policies import Policies
    from trainmaster.client.tasks import Tasks
    from trainmaster.client.transport import Content
    from trainmaster.client.users import Users

Json = dict[str, Any]
Files = Sequence[Mapping[str, Any]]
CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"


def hashed(password: str) -> str:
    """The hash that travels instead of a password; Determined's clients send the same."""
    import hashlib  # which loads OpenSSL: only who logs in needs it

    return hashlib.sha512((CLIENT_SALT + password).encode()).hexdigest() if password else ""


class Master(Resource):
    """A master, used as one user; `trainmaster.client.connect` returns one.

    Not thread-safe: use one per thread. Calls that may be repeated are repeated for about two seconds while the master
    does not answer.
    """

    @property
    def url(self) -> str:
        """The master's address in full, such as `http://login1:8080`."""
        return self._http.url

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._http.close()

    # -- the other calls, by subject ------------------------------------------------------------------------------

    @cached_property
    def edits(self) -> Experiments:
        """Changes to experiments, trials and checkpoints."""
        from trainmaster.client.experiments import Experiments

        return Experiments(self._http)

    @cached_property
    def organisation(self) -> Organisation:
        """Workspaces, projects, and the pools that are reserved for workspaces."""
        from trainmaster.client.organisation import Organisation

        return Organisation(self._http)

    @cached_property
    def registry(self) -> ModelRegistry:
        """The model registry and templates, with the API's own fields; `models` and `model` return objects with
        methods."""
        from trainmaster.client.model_registry import ModelRegistry

        return ModelRegistry(self._http)

    @cached_property
    def accounts(self) -> Users:
        """Users, groups, roles and access tokens."""
        from trainmaster.client.users import Users

        return Users(self._http)

    @cached_property
    def policies(self) -> Policies:
        """Configuration policies and the site's banner."""
        from trainmaster.client.policies import Policies

        return Policies(self._http)

    @cached_property
    def cluster(self) -> ClusterView:
        """The master's own log and configuration, its live tasks, and the usage of slots."""
        from trainmaster.client.cluster import ClusterView

        return ClusterView(self._http)

    @cached_property
    def tasks(self) -> Tasks:
        """Commands, notebooks, shells, TensorBoards and generic tasks."""
        from trainmaster.client.tasks import Tasks

        return Tasks(self._http)

    # -- session, users -------------------------------------------------------------------------------------------

    def login(self, username: str, password: str) -> str:
        """Log in; this client uses the new session from now on.

        Args:
            username: Name of the user.
            password: The password as typed; its hash is sent.

        Returns:
            The bearer token of the session.

        Raises:
            NotLoggedIn: The name or the password is wrong.
            NotAllowed: The account is not active.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return self.login_with_mark(username, password, "")[0]

    def login_with_mark(self, username: str, password: str, mark: str) -> tuple[str, str]:
        """Log in, and show the mark of an earlier log-in.

        The mark distinguishes this client from others that guess the password from the same address, so that their
        failures do not delay it.

        Args:
            username: Name of the user.
            password: The password as typed; its hash is sent.
            mark: The mark that an earlier log-in of this user returned; empty for none.

        Returns:
            The bearer token, which this client uses from now on, and the mark to keep for the next log-in.

        Raises:
            NotLoggedIn: The name or the password is wrong.
            NotAllowed: The account is not active.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        body = {"username": username, "password": hashed(password), "isHashed": True}
        if mark:
            body["clientMark"] = mark
        answer = self._http.request("POST", "/api/v1/auth/login", body=body, retry=False)
        token = str(answer["token"])
        self._http.token = token
        return token, str(answer.get("clientMark") or "")

    def logout(self) -> None:
        """End the session on the master.

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        self._http.request("POST", "/api/v1/auth/logout", body={})

    def whoami(self) -> wire.User:
        """Get the user of the session.

        Returns:
            The user, with the API's fields.

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        found: wire.User = self._http.request("GET", "/api/v1/me")["user"]
        return found

    def users(self) -> list[wire.User]:
        """List all users.

        Returns:
            The users, with the API's fields.

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return self._pages("/api/v1/users", "users", {}, PAGE, 0, True)

    def link_user(self, username: str, *, uid: int, user: str, gid: int, group: str) -> Json:
        """Set the Unix account that the jobs of a user run as. For administrators.

        Args:
            username: Name of the user.
            uid: Number of the Unix account.
            user: Name of the Unix account.
            gid: Number of its group.
            group: Name of its group.

        Returns:
            The user as changed.

        Raises:
            NoSuchThing: There is no such user.
            NotAllowed: The caller is not an administrator.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        found = self._http.request("GET", f"/api/v1/users/{quote(username, safe='')}/by-username")["user"]
        linked = {"agentUid": uid, "agentUser": user, "agentGid": gid, "agentGroup": group}
        return dict(
            self._http.request("PATCH", f"/api/v1/users/{found['id']}", body={"agentUserGroup": linked})["user"]
        )

    def info(self) -> Json:
        """Get what the master reports about itself.

        Returns:
            Version, cluster, and limits such as `maxContextBytes`, with the API's fields.

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return self._http.request("GET", "/api/v1/master")

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

        Returns:
            The experiment.

        Raises:
            FileFault: The configuration file cannot be read.
            ClientError: A file to send is missing, unreadable or too large.
            NoSuchThing: There is no such project or template.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
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
        sent = files.within(body) if isinstance(files, ContextFolder) else {**body, "modelDefinition": list(files)}
        # Not repeated: a second copy of an experiment is worse than an error.
        answer = self._http.request("POST", "/api/v1/experiments", body=sent, retry=False)
        return Experiment.parse(answer["experiment"], master=self)

    def experiment(self, experiment_id: int) -> Experiment:
        """Get an experiment.

        Args:
            experiment_id: Number of the experiment.

        Returns:
            The experiment as it is now.

        Raises:
            NoSuchThing: There is no such experiment.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
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

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
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

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        from trainmaster.client.filters import written

        wanted = json.dumps(written(where, archived=archived))
        body = {"filter": wanted, "sort": sort, "projectId": project_id, "limit": limit}
        found = self._http.request("POST", "/api/v1/experiments-search", body=body)["experiments"]
        return [Experiment.parse(one["experiment"], master=self) for one in found]

    def steer(self, experiment_id: int, verb: str) -> None:
        """Change what an experiment is doing.

        Args:
            experiment_id: Number of the experiment.
            verb: pause, activate, cancel or kill.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not change it.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        self._http.request("POST", f"/api/v1/experiments/{experiment_id}/{verb}", body={})

    def delete_experiment(self, experiment_id: int) -> None:
        """Delete an experiment with its checkpoints and logs. The master continues after the call has returned.

        Args:
            experiment_id: Number of the experiment.

        Raises:
            NoSuchThing: There is no such experiment.
            NotAllowed: The caller may not delete it.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
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
            experiment_id: Number of the experiment.
            limit: Entries per page.
            offset: Entries to skip.
            everything: Read all pages from `offset` on; False reads one.
            sort_by: The API's word for the order; by id unless given.

        Returns:
            The trials.

        Raises:
            NoSuchThing: There is no such experiment.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        path = f"/api/v1/experiments/{experiment_id}/trials"
        found = self._pages(path, "trials", {"sortBy": sort_by}, limit, offset, everything)
        return [Trial.parse(raw, master=self) for raw in found]

    def count_trials(self, experiment_id: int, states: Sequence[str] = ()) -> int:
        """Count the trials of an experiment.

        Args:
            experiment_id: Number of the experiment.
            states: Count only these states, such as RUNNING; empty for all.

        Returns:
            The number of trials.

        Raises:
            NoSuchThing: There is no such experiment.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        query = {"states": [f"STATE_{state}" for state in states], "limit": 1}
        answer = self._http.request("GET", f"/api/v1/experiments/{experiment_id}/trials", query=query)
        return int(answer["pagination"]["total"])

    def checkpoints(self, experiment_id: int, *, best: int | None = None) -> list[Checkpoint]:
        """List the checkpoints of an experiment.

        Args:
            experiment_id: Number of the experiment.
            best: Only this many, best first by the searcher's metric. None: all, oldest first.

        Returns:
            The checkpoints.

        Raises:
            NoSuchThing: There is no such experiment.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        path = f"/api/v1/experiments/{experiment_id}/checkpoints"
        if best is not None:
            query = {"sortByAttr": "SORT_BY_SEARCHER_METRIC", "limit": best}
            found = self._http.request("GET", path, query=query)["checkpoints"]
            return [Checkpoint.parse(raw, master=self) for raw in found]
        query = {"sortByAttr": "SORT_BY_END_TIME"}
        found = self._pages(path, "checkpoints", query, PAGE, 0, True)
        return [Checkpoint.parse(raw, master=self) for raw in found]

    def trial_checkpoints(self, trial_id: int, *, best: bool = False) -> list[Checkpoint]:
        """List the checkpoints of a trial whose files exist.

        Args:
            trial_id: Number of the trial.
            best: True: best first by the searcher's metric; else oldest first.

        Returns:
            The checkpoints.

        Raises:
            NoSuchThing: There is no such trial.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
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

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return dict(self._http.request("POST", "/api/v1/preview-hp-search", body={"config": config})["summary"])

    # -- trials, checkpoints ------------------------------------------------------------------------------------------

    def trial(self, trial_id: int) -> Trial:
        """Get a trial.

        Args:
            trial_id: Number of the trial.

        Returns:
            The trial as it is now.

        Raises:
            NoSuchThing: There is no such trial.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return Trial.parse(self._http.request("GET", f"/api/v1/trials/{trial_id}")["trial"], master=self)

    def metrics(self, trial_ids: Sequence[int], group: str = "") -> Iterator[MetricsReport]:
        """Read the metrics that trials have reported, trial by trial in order of steps. Errors are raised while
        iterating.

        Args:
            trial_ids: Numbers of the trials.
            group: training, validation, or a name of the training code's own; empty for all groups.

        Returns:
            An iterator over the reports, read as it is used.

        Raises:
            NoSuchThing: One of the trials does not exist.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        if trial_ids:
            query = {"trialIds": list(trial_ids), "group": group or None}
            for message in self._http.lines("/api/v1/trials/metrics/trial_metrics", query=query):
                for raw in message["metrics"]:
                    yield MetricsReport.parse(raw)

    def kill_trial(self, trial_id: int) -> None:
        """Kill a trial without a checkpoint.

        Args:
            trial_id: Number of the trial.

        Raises:
            NoSuchThing: There is no such trial.
            NotAllowed: The caller may not change it.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        self._http.request("POST", f"/api/v1/trials/{trial_id}/kill", body={})

    def workloads(self, trial_id: int, *, limit: int = 1000, offset: int = 0, everything: bool = True) -> list[Json]:
        """List the workloads of a trial: training, validations and checkpoints, as Determined's clients show them.

        Args:
            trial_id: Number of the trial.
            limit: Entries per page.
            offset: Entries to skip.
            everything: Read all pages from `offset` on; False reads one.

        Returns:
            The workloads with the API's fields.

        Raises:
            NoSuchThing: There is no such trial.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return self._pages(f"/api/v1/trials/{trial_id}/workloads", "workloads", {}, limit, offset, everything)

    def logs(
        self,
        trial_id: int,
        *,
        follow: bool = False,
        tail: int = 0,
        head: int = 0,
        notice: Callable[[str], None] | None = None,
        **where: Any,
    ) -> Iterator[LogLine]:
        """Read the log of a trial, in order of arrival. Errors are raised while iterating.

        Args:
            trial_id: Number of the trial.
            follow: Continue until the trial has ended and everything is read, also through restarts of the master.
            tail: Only this many lines at the end, followed by new ones with `follow`; 0 for all.
            head: Only this many lines at the start, unless `follow` or `tail` is set; 0 for all.
            notice: Called with a sentence each time that the master stops answering.
            where: Filters, named as in the API: levels, rankIds, searchText ...

        Returns:
            An iterator over the lines.

        Raises:
            NoSuchThing: There is no such trial.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        path = f"/api/v1/trials/{trial_id}/logs"
        last = 0
        if tail:
            newest = self._http.lines(path, query={"limit": tail, "orderBy": "ORDER_BY_DESC", **where})
            for line in reversed([LogLine.parse(raw) for raw in newest]):
                last = line.number
                yield line
        if not follow:
            if not tail:
                for raw in self._http.lines(path, query={"limit": head or None, **where}):
                    yield LogLine.parse(raw)
            return
        self.trial(trial_id)  # a master that does not answer from the start is an error at once
        away_since: float | None = None
        while True:
            try:
                # A master that does not support afterId sends all lines again; known ones are skipped here.
                for raw in self._http.lines(path, query={"follow": True, "afterId": last or None, **where}):
                    line, away_since = LogLine.parse(raw), None
                    if line.number > last:
                        last = line.number
                        yield line
                if self.trial(trial_id).ended_for_good:
                    return
                away_since = None  # a master that is stopped in an orderly way ends its streams
            except MasterUnreachable as error:
                if away_since is None:
                    away_since = time.monotonic()
                    if notice:
                        notice(str(error))
                if time.monotonic() > away_since + PATIENCE:
                    raise
            time.sleep(1.0)

    def story(self, trial_id: int) -> list[StoryEvent]:
        """Get the story of a trial: its events and decisions.

        Args:
            trial_id: Number of the trial.

        Returns:
            The events, oldest first.

        Raises:
            NoSuchThing: There is no such trial.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return [
            StoryEvent.parse(raw) for raw in self._http.request("GET", f"/api/x1/trials/{trial_id}/story")["events"]
        ]

    def checkpoint(self, uuid: str) -> Checkpoint:
        """Get a checkpoint.

        Args:
            uuid: Id of the checkpoint.

        Returns:
            The checkpoint as it is now.

        Raises:
            NoSuchThing: There is no such checkpoint.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        raw = self._http.request("GET", f"/api/v1/checkpoints/{quote(uuid, safe='')}")["checkpoint"]
        return Checkpoint.parse(raw, master=self)

    def checkpoint_archive(self, uuid: str) -> AbstractContextManager[Content]:
        """Open the files of a checkpoint as a tar stream from the master. Errors are raised when the stream is entered
        or read.

        Args:
            uuid: Id of the checkpoint.

        Returns:
            A context manager whose value has `read`.

        Raises:
            NoSuchThing: There is no such checkpoint, or its files are gone.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return self._http.content(f"/checkpoints/{quote(uuid, safe='')}", accept="application/x-tar")

    # -- models -------------------------------------------------------------------------------------------------------

    def model(self, name: str) -> Model:
        """Get a model.

        Args:
            name: Name or number of the model.

        Returns:
            The model as it is now.

        Raises:
            NoSuchThing: There is no such model.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return Model.parse(self.registry.model(name), master=self)

    def models(self, **query: Any) -> list[Model]:
        """List models.

        Args:
            query: Filters, named as in the API: name, labels, workspaceNames, archived, sortBy ...

        Returns:
            The models that match.

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return [Model.parse(raw, master=self) for raw in self.registry.models(**query)]

    def create_model(self, name: str, **fields: Any) -> Model:
        """Create a model in the registry.

        Args:
            name: Name of the model, unique in the registry.
            fields: Named as in the API: description, notes, labels, metadata, workspaceName ...

        Returns:
            The model.

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
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
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return dict(self._http.request("GET", f"/api/v1/tasks/{task_id}")["task"])

    # -- queue --------------------------------------------------------------------------------------------------------

    def jobs(
        self,
        *,
        pool: str | None = None,
        limit: int = 100,
        offset: int = 0,
        everything: bool = True,
        reverse: bool = False,
    ) -> list[QueuedJob]:
        """List the jobs in the queue.

        Args:
            pool: Only those of one resource pool.
            limit: Entries per page.
            offset: Entries to skip.
            everything: Read all pages from `offset` on; False reads one.
            reverse: Last job of the queue first.

        Returns:
            The jobs in the order of the queue.

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        query = {"resourcePool": pool, "orderBy": "ORDER_BY_DESC" if reverse else "ORDER_BY_ASC"}
        return [
            QueuedJob.parse(raw)
            for raw in self._pages("/api/v1/job-queues-v2", "jobs", query, limit, offset, everything)
        ]

    def pools(self) -> list[wire.ResourcePool]:
        """List the resource pools.

        Returns:
            The pools with the API's fields.

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return list(self._http.request("GET", "/api/v1/resource-pools")["resourcePools"])

    def resume_pool(self, name: str) -> None:
        """Close the circuit breaker of a pool that is paused after failures. For administrators.

        Args:
            name: Name of the pool.

        Raises:
            NoSuchThing: There is no such pool.
            NotAllowed: The caller is not an administrator.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        self._http.request("POST", f"/api/x1/resource-pools/{quote(name, safe='')}/resume")

    def update_job(self, job_id: str, **changes: Any) -> None:
        """Change a job's place in the queue.

        Args:
            job_id: Id of the job.
            changes: Named as in the API: priority, weight, resourcePool, aheadOf, behindOf. None is not sent.

        Raises:
            NoSuchThing: There is no such job.
            NotAllowed: The caller may not change it.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        update = {"jobId": job_id, **{key: value for key, value in changes.items() if value is not None}}
        self._http.request("POST", "/api/v1/job-queues", body={"updates": [update]})

    # -- agents ---------------------------------------------------------------------------------------------------

    def agents(self) -> list[Json]:
        """List the agents on Docker hosts.

        Returns:
            The agents by name, with the API's fields.

        Raises:
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        return list(self._http.request("GET", "/api/v1/agents")["agents"])

    def enable_agent(self, agent_id: str, slot: int | None = None) -> None:
        """Let an agent or one of its slots take work again. For administrators.

        Args:
            agent_id: Name of the agent.
            slot: Number of the slot; None for the whole agent.

        Raises:
            NoSuchThing: There is no such agent or slot.
            NotAllowed: The caller may not manage agents.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        self._http.request("POST", f"/api/v1/agents/{_place(agent_id, slot)}/enable", body={})

    def revoke_agent(self, agent_id: str) -> None:
        """Invalidate the agent's secret, and the key with which new agents enrol. For administrators.

        Args:
            agent_id: Name of the agent.

        Raises:
            NoSuchThing: There is no such agent.
            NotAllowed: The caller may not manage agents.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        self._http.request("DELETE", f"/api/x1/agent-secrets/{quote(agent_id, safe='')}")

    def disable_agent(self, agent_id: str, slot: int | None = None, *, drain: bool = False) -> None:
        """Give an agent or one of its slots no more work. For administrators.

        Args:
            agent_id: Name of the agent.
            slot: Number of the slot; None for the whole agent.
            drain: Let running jobs finish; False ends them.

        Raises:
            NoSuchThing: There is no such agent or slot.
            NotAllowed: The caller may not manage agents.
            MasterUnreachable: The master does not answer, or is not ready.
            APIError: The master refuses the call.
        """
        self._http.request("POST", f"/api/v1/agents/{_place(agent_id, slot)}/disable", body={"drain": drain})


def _file(config: str | Path | Mapping[str, Any]) -> Path | None:
    """The configuration's file, if it is one: a path, or text that names an existing file."""
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


def _place(agent_id: str, slot: int | None) -> str:
    name = quote(agent_id, safe="")
    return name if slot is None else f"{name}/slots/{slot}"
