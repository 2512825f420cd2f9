"""The calls, one method a verb."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from trainmaster.client.errors import MasterUnreachable
from trainmaster.client.models import Checkpoint, Experiment, LogLine, QueuedJob, StoryEvent, Trial
from trainmaster.client.resource import PAGE, Resource

Json = dict[str, Any]
PATIENCE = 600.0  # seconds that one who follows waits for a master that is away
CLIENT_SALT = "GubPEmmotfiK9TMD6Zdw"


def hashed(password: str) -> str:
    """What travels instead of a password; Determined's clients send the same."""
    return hashlib.sha512((CLIENT_SALT + password).encode()).hexdigest() if password else ""


class Master(Resource):
    """A master as seen by one user. Every method raises MasterUnreachable or an APIError."""

    # -- who, what ------------------------------------------------------------------------------------------------

    def login(self, username: str, password: str) -> str:
        """A bearer token, which this client uses from now on."""
        body = {"username": username, "password": hashed(password), "isHashed": True}
        answer = self._http.request("POST", "/api/v1/auth/login", body=body, retry=False)
        token = str(answer["token"])
        self._http.token = token
        return token

    def logout(self) -> None:
        self._http.request("POST", "/api/v1/auth/logout", body={})

    def whoami(self) -> Json:
        return dict(self._http.request("GET", "/api/v1/me")["user"])

    def users(self) -> list[Json]:
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
        config: str,
        files: Sequence[Mapping[str, Any]],
        *,
        activate: bool = True,
        project_id: int | None = None,
        template: str | None = None,
        validate_only: bool = False,
        source: str | None = None,
    ) -> Experiment:
        body = {
            "config": config,
            "modelDefinition": list(files),
            "activate": activate,
            "projectId": project_id or 0,
            "template": template,
            "validateOnly": validate_only,
            "configSource": source,
        }
        # Not sent twice: a second copy of an experiment is worse than an error.
        return Experiment.parse(self._http.request("POST", "/api/v1/experiments", body=body, retry=False)["experiment"])

    def experiment(self, experiment_id: int) -> Experiment:
        return Experiment.parse(self._http.request("GET", f"/api/v1/experiments/{experiment_id}")["experiment"])

    def experiments(
        self,
        *,
        users: Sequence[str] = (),
        archived: bool | None = False,
        project_id: int | None = None,
        limit: int = PAGE,
        offset: int = 0,
        everything: bool = True,
    ) -> list[Experiment]:
        """By ascending id; `everything` reads all pages from `offset` on."""
        query = {"archived": archived, "users": list(users), "projectId": project_id}
        return [
            Experiment.parse(raw)
            for raw in self._pages("/api/v1/experiments", "experiments", query, limit, offset, everything)
        ]

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
        return [Trial.parse(raw) for raw in self._pages(path, "trials", {"sortBy": sort_by}, limit, offset, everything)]

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
            return [Checkpoint.parse(raw) for raw in self._http.request("GET", path, query=query)["checkpoints"]]
        query = {"sortByAttr": "SORT_BY_END_TIME"}
        return [Checkpoint.parse(raw) for raw in self._pages(path, "checkpoints", query, PAGE, 0, True)]

    def trial_checkpoints(self, trial_id: int, *, best: bool = False) -> list[Checkpoint]:
        """Those whose files are there; oldest first, or the best first."""
        query = {"sortByAttr": f"SORT_BY_{'SEARCHER_METRIC' if best else 'END_TIME'}", "states": "STATE_COMPLETED"}
        raw = self._pages(f"/api/v1/trials/{trial_id}/checkpoints", "checkpoints", query, PAGE, 0, True)
        return [Checkpoint.parse(entry) for entry in raw]

    def preview_search(self, config: Json) -> Json:
        return dict(self._http.request("POST", "/api/v1/preview-hp-search", body={"config": config})["summary"])

    # -- trials, checkpoints ------------------------------------------------------------------------------------------

    def trial(self, trial_id: int) -> Trial:
        return Trial.parse(self._http.request("GET", f"/api/v1/trials/{trial_id}")["trial"])

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
        return Checkpoint.parse(self._http.request("GET", f"/api/v1/checkpoints/{uuid}")["checkpoint"])

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

    def pools(self) -> list[Json]:
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

    def disable_agent(self, agent_id: str, slot: int | None = None, *, drain: bool = False) -> None:
        """`drain`: what runs there may go on to its end."""
        self._http.request("POST", f"/api/v1/agents/{_place(agent_id, slot)}/disable", body={"drain": drain})


def _place(agent_id: str, slot: int | None) -> str:
    name = quote(agent_id, safe="")
    return name if slot is None else f"{name}/slots/{slot}"
