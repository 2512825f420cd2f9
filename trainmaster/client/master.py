"""The calls, one method a verb."""

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
    """What travels instead of a password; Determined's clients send the same."""
    import hashlib  # which loads OpenSSL: only who logs in needs it

    return hashlib.sha512((CLIENT_SALT + password).encode()).hexdigest() if password else ""


class Master(Resource):
    """A master as seen by one user; `trainmaster.client.connect` makes one. Every method raises MasterUnreachable or an
    APIError. Not thread-safe: one a thread."""

    @property
    def url(self) -> str:
        return self._http.url

    def close(self) -> None:
        """Close the connection; the next call opens a new one."""
        self._http.close()

    # -- the other verbs, by what they are about ------------------------------------------------------------------

    @cached_property
    def edits(self) -> Experiments:
        """What is changed about experiments, trials and checkpoints."""
        from trainmaster.client.experiments import Experiments

        return Experiments(self._http)

    @cached_property
    def organisation(self) -> Organisation:
        """Workspaces, projects, and which pools are kept for them."""
        from trainmaster.client.organisation import Organisation

        return Organisation(self._http)

    @cached_property
    def registry(self) -> ModelRegistry:
        """Models and templates as the API has them; `models` and `model` are more at hand."""
        from trainmaster.client.model_registry import ModelRegistry

        return ModelRegistry(self._http)

    @cached_property
    def accounts(self) -> Users:
        """Users, groups, roles and access tokens."""
        from trainmaster.client.users import Users

        return Users(self._http)

    @cached_property
    def policies(self) -> Policies:
        """What all configurations must hold, and the banner."""
        from trainmaster.client.policies import Policies

        return Policies(self._http)

    @cached_property
    def cluster(self) -> ClusterView:
        """The master's own log and configuration, its tasks, and what slots were used for."""
        from trainmaster.client.cluster import ClusterView

        return ClusterView(self._http)

    @cached_property
    def tasks(self) -> Tasks:
        """Commands, notebooks, shells, TensorBoards and generic tasks."""
        from trainmaster.client.tasks import Tasks

        return Tasks(self._http)

    # -- who, what ------------------------------------------------------------------------------------------------

    def login(self, username: str, password: str) -> str:
        """A bearer token, which this client uses from now on."""
        return self.login_with_mark(username, password, "")[0]

    def login_with_mark(self, username: str, password: str, mark: str) -> tuple[str, str]:
        """A bearer token, which this client uses from now on, and the mark to show at the next log-in: it tells this
        client from those who guess at the password from the same address. `mark`: that of an earlier log-in."""
        body = {"username": username, "password": hashed(password), "isHashed": True}
        if mark:
            body["clientMark"] = mark
        answer = self._http.request("POST", "/api/v1/auth/login", body=body, retry=False)
        token = str(answer["token"])
        self._http.token = token
        return token, str(answer.get("clientMark") or "")

    def logout(self) -> None:
        self._http.request("POST", "/api/v1/auth/logout", body={})

    def whoami(self) -> wire.User:
        found: wire.User = self._http.request("GET", "/api/v1/me")["user"]
        return found

    def users(self) -> list[wire.User]:
        return self._pages("/api/v1/users", "users", {}, PAGE, 0, True)

    def link_user(self, username: str, *, uid: int, user: str, gid: int, group: str) -> Json:
        """Say which Unix account the jobs of `username` run as. For administrators."""
        found = self._http.request("GET", f"/api/v1/users/{quote(username, safe='')}/by-username")["user"]
        linked = {"agentUid": uid, "agentUser": user, "agentGid": gid, "agentGroup": group}
        return dict(
            self._http.request("PATCH", f"/api/v1/users/{found['id']}", body={"agentUserGroup": linked})["user"]
        )

    def info(self) -> Json:
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
        """
        Args:
            config: a file, YAML text, or a mapping.
            files: the folder with the training code, less what its `.detignore` names; or entries made beforehand.
            includes: more files and folders, each beside the code under its own name.
            activate: False leaves it paused.
            source: where the configuration comes from, for messages about it; the file's name where it is one.
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
        # Not sent twice: a second copy of an experiment is worse than an error.
        answer = self._http.request("POST", "/api/v1/experiments", body=sent, retry=False)
        return Experiment.parse(answer["experiment"], master=self)

    def experiment(self, experiment_id: int) -> Experiment:
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
        """By ascending id; `everything` reads all pages from `offset` on. `where`: further filters as the API names
        them, such as name, labels, states and sortBy."""
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
        """The experiments for which a condition holds (`filters`), the newest first.

        Args:
            sort: columns to sort by, as in `searcherMetricsVal=asc,id=desc`.
            archived: True shows archived ones too.
            limit: -1 for all.
        """
        from trainmaster.client.filters import written

        wanted = json.dumps(written(where, archived=archived))
        body = {"filter": wanted, "sort": sort, "projectId": project_id, "limit": limit}
        found = self._http.request("POST", "/api/v1/experiments-search", body=body)["experiments"]
        return [Experiment.parse(one["experiment"], master=self) for one in found]

    def steer(self, experiment_id: int, verb: str) -> None:
        """`verb`: pause, activate, cancel or kill."""
        self._http.request("POST", f"/api/v1/experiments/{experiment_id}/{verb}", body={})

    def delete_experiment(self, experiment_id: int) -> None:
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
        path = f"/api/v1/experiments/{experiment_id}/trials"
        found = self._pages(path, "trials", {"sortBy": sort_by}, limit, offset, everything)
        return [Trial.parse(raw, master=self) for raw in found]

    def count_trials(self, experiment_id: int, states: Sequence[str] = ()) -> int:
        """How many trials are in one of the states, or how many there are."""
        query = {"states": [f"STATE_{state}" for state in states], "limit": 1}
        answer = self._http.request("GET", f"/api/v1/experiments/{experiment_id}/trials", query=query)
        return int(answer["pagination"]["total"])

    def checkpoints(self, experiment_id: int, *, best: int | None = None) -> list[Checkpoint]:
        """Oldest first; `best` of them by the searcher's metric, the best first."""
        path = f"/api/v1/experiments/{experiment_id}/checkpoints"
        if best is not None:
            query = {"sortByAttr": "SORT_BY_SEARCHER_METRIC", "limit": best}
            found = self._http.request("GET", path, query=query)["checkpoints"]
            return [Checkpoint.parse(raw, master=self) for raw in found]
        query = {"sortByAttr": "SORT_BY_END_TIME"}
        found = self._pages(path, "checkpoints", query, PAGE, 0, True)
        return [Checkpoint.parse(raw, master=self) for raw in found]

    def trial_checkpoints(self, trial_id: int, *, best: bool = False) -> list[Checkpoint]:
        """Those whose files are there; oldest first, or the best first."""
        query = {"sortByAttr": f"SORT_BY_{'SEARCHER_METRIC' if best else 'END_TIME'}", "states": "STATE_COMPLETED"}
        raw = self._pages(f"/api/v1/trials/{trial_id}/checkpoints", "checkpoints", query, PAGE, 0, True)
        return [Checkpoint.parse(entry, master=self) for entry in raw]

    def preview_search(self, config: Json) -> Json:
        return dict(self._http.request("POST", "/api/v1/preview-hp-search", body={"config": config})["summary"])

    # -- trials, checkpoints ------------------------------------------------------------------------------------------

    def trial(self, trial_id: int) -> Trial:
        return Trial.parse(self._http.request("GET", f"/api/v1/trials/{trial_id}")["trial"], master=self)

    def metrics(self, trial_ids: Sequence[int], group: str = "") -> Iterator[MetricsReport]:
        """What trials have reported, trial by trial and then by steps; a group, or all of them."""
        if trial_ids:
            query = {"trialIds": list(trial_ids), "group": group or None}
            for message in self._http.lines("/api/v1/trials/metrics/trial_metrics", query=query):
                for raw in message["metrics"]:
                    yield MetricsReport.parse(raw)

    def kill_trial(self, trial_id: int) -> None:
        self._http.request("POST", f"/api/v1/trials/{trial_id}/kill", body={})

    def workloads(self, trial_id: int, *, limit: int = 1000, offset: int = 0, everything: bool = True) -> list[Json]:
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
        """Lines in the order in which they arrived.

        Args:
            follow: go on until the trial has ended and all is read, through restarts of the master.
            tail, head: only that many lines at one end; followed lines come after the tail.
            notice: told in words when the master is away, once each time.
            where: filters as the API names them.
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
        self.trial(trial_id)  # a master that is away from the start is an error at once
        away_since: float | None = None
        while True:
            try:
                # A master that does not know afterId sends all again; what was seen is skipped here.
                for raw in self._http.lines(path, query={"follow": True, "afterId": last or None, **where}):
                    line, away_since = LogLine.parse(raw), None
                    if line.number > last:
                        last = line.number
                        yield line
                if self.trial(trial_id).ended_for_good:
                    return
                away_since = None  # a master that stops in order ends its streams
            except MasterUnreachable as error:
                if away_since is None:
                    away_since = time.monotonic()
                    if notice:
                        notice(str(error))
                if time.monotonic() > away_since + PATIENCE:
                    raise
            time.sleep(1.0)

    def story(self, trial_id: int) -> list[StoryEvent]:
        return [
            StoryEvent.parse(raw) for raw in self._http.request("GET", f"/api/x1/trials/{trial_id}/story")["events"]
        ]

    def checkpoint(self, uuid: str) -> Checkpoint:
        raw = self._http.request("GET", f"/api/v1/checkpoints/{quote(uuid, safe='')}")["checkpoint"]
        return Checkpoint.parse(raw, master=self)

    def checkpoint_archive(self, uuid: str) -> AbstractContextManager[Content]:
        """Its files as a tar, as this comes from the master."""
        return self._http.content(f"/checkpoints/{quote(uuid, safe='')}", accept="application/x-tar")

    # -- models -------------------------------------------------------------------------------------------------------

    def model(self, name: str) -> Model:
        """By name or number."""
        return Model.parse(self.registry.model(name), master=self)

    def models(self, **query: Any) -> list[Model]:
        """`query` as the API names it: name, labels, workspaceNames, archived, sortBy ..."""
        return [Model.parse(raw, master=self) for raw in self.registry.models(**query)]

    def create_model(self, name: str, **fields: Any) -> Model:
        """`fields` as the API names them: description, notes, labels, metadata, workspaceName ..."""
        return Model.parse(self.registry.create_model(name, **fields), master=self)

    def task(self, task_id: str) -> Json:
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
        query = {"resourcePool": pool, "orderBy": "ORDER_BY_DESC" if reverse else "ORDER_BY_ASC"}
        return [
            QueuedJob.parse(raw)
            for raw in self._pages("/api/v1/job-queues-v2", "jobs", query, limit, offset, everything)
        ]

    def pools(self) -> list[wire.ResourcePool]:
        return list(self._http.request("GET", "/api/v1/resource-pools")["resourcePools"])

    def resume_pool(self, name: str) -> None:
        """Go on with a pool that rests after failures (administrators only)."""
        self._http.request("POST", f"/api/x1/resource-pools/{quote(name, safe='')}/resume")

    def update_job(self, job_id: str, **changes: Any) -> None:
        """`changes` as the API names them: priority, weight, resourcePool, aheadOf, behindOf."""
        update = {"jobId": job_id, **{key: value for key, value in changes.items() if value is not None}}
        self._http.request("POST", "/api/v1/job-queues", body={"updates": [update]})

    # -- agents ---------------------------------------------------------------------------------------------------

    def agents(self) -> list[Json]:
        """Agents on Docker hosts, by name."""
        return list(self._http.request("GET", "/api/v1/agents")["agents"])

    def enable_agent(self, agent_id: str, slot: int | None = None) -> None:
        self._http.request("POST", f"/api/v1/agents/{_place(agent_id, slot)}/enable", body={})

    def revoke_agent(self, agent_id: str) -> None:
        """Make the agent's secret worthless, and the key by which new ones enrol. For administrators."""
        self._http.request("DELETE", f"/api/x1/agent-secrets/{quote(agent_id, safe='')}")

    def disable_agent(self, agent_id: str, slot: int | None = None, *, drain: bool = False) -> None:
        """`drain`: what runs there may go on to its end."""
        self._http.request("POST", f"/api/v1/agents/{_place(agent_id, slot)}/disable", body={"drain": drain})


def _file(config: str | Path | Mapping[str, Any]) -> Path | None:
    """The file that a configuration is given by; text that names a file is that file."""
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
