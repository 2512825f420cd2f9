"""Creates one object of every kind for a user, and computes digests of their rows in the database."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, text

from tests.support.api.http import Api
from tests.support.api.jobs import Job, config, create, jobs_of
from tests.support.api.people import Person
from tests.support.master import MasterProcess

Json = dict[str, Any]


@dataclass(frozen=True)
class Victim:
    """`word` is in everything's name. `things`: by the words that addresses use, for `str.format_map`."""

    person: Person
    word: str
    things: Json
    job: Job


def made(api: Api, path: str, body: Json, *keys: str) -> Any:
    answer = api.post(f"/api/v1{path}", body)
    assert answer.status == 200, (path, answer.content)
    found = answer.json
    for key in keys:
        found = found[key]
    return found


def make(master: MasterProcess, chief: Api, owner: Person, workspace: int, project: Json) -> Victim:
    """The jobs must wait in the queue, where the test plays one of them."""
    api, word = owner.api, f"victim{uuid.uuid4().hex[:10]}"
    experiment = create(api, config(name=word, description=word), projectId=project["id"])
    (job,) = jobs_of(master, api, experiment)
    assert job.lease().status == 200
    assert job.send([job.validation(1, loss=0.5)]).status == 200
    line = {"t": 1.0, "stdtype": "stdout", "level": "INFO", "rank": 0, "line": f"{word} says"}
    assert job.send([line], stream="log-0").status == 200
    saved = str(uuid.uuid4())
    checkpoint = {"uuid": saved, "taskId": job.task_id, "metadata": {"steps_completed": 1}, "resources": {word: 1}}
    assert job.api.post("/api/v1/checkpoints", {**checkpoint, "allocationId": job.allocation_id}).status == 200
    ended = create(api, config(name=word), projectId=project["id"])
    assert api.post(f"/api/v1/experiments/{ended}/kill").status == 200
    model = made(api, "/models", {"name": f"m-{word}", "workspaceId": workspace}, "model", "name")
    made(api, f"/models/{model}/versions", {"modelName": model, "checkpointUuid": saved})
    template = f"t-{word}"
    made(api, f"/templates/{template}", {"config": {"description": word}, "workspaceId": workspace})
    tasks = {}
    for kind in ("command", "notebook", "shell"):
        wish: Json = {"config": {"description": word, "resources": {"slots": 1}}, "workspaceId": workspace}
        if kind == "command":
            wish["config"]["entrypoint"] = ["sleep", "600"]
        tasks[f"{kind}_id"] = made(api, f"/{kind}s", wish, kind, "id")
    shown = {"experimentIds": [experiment], "workspaceId": workspace, "config": {"description": word}}
    tasks["tensorboard_id"] = made(api, "/tensorboards", shown, "tensorboard", "id")
    generic = {
        "config": f"entrypoint: [sleep, '600']\ndescription: {word}\nresources: {{slots: 1}}\n",
        "projectId": project["id"],
    }
    hook = {
        "name": word,
        "url": f"https://hooks.example/{word}",
        "workspaceId": workspace,
        "triggers": [{"triggerType": "TRIGGER_TYPE_EXPERIMENT_STATE_CHANGE", "condition": {"state": "COMPLETED"}}],
    }
    group = made(chief, "/groups", {"name": word, "addUsers": [owner.id]}, "group", "groupId")
    token = made(chief, "/tokens", {"userId": owner.id, "description": word}, "tokenId")
    return Victim(
        owner,
        word,
        {
            **{"workspace_id": workspace, "project_id": project["id"], "key": project["key"]},
            **{"experiment_id": experiment, "ended_id": ended, "trial_id": job.trial_id, "task_id": job.task_id},
            **{
                "allocation_id": job.allocation_id,
                "uuid": saved,
                "checkpoint_uuid": saved,
                "version": 1,
                "path": "",
                "alias": "production",
            },
            **{"model_name": model, "template_name": template, **tasks},
            **{"generic_id": made(api, "/generic-tasks", generic, "taskId")},
            **{"webhook_id": made(chief, "/webhooks", hook, "webhook", "id"), "group_id": group, "token_id": token},
            "session_id": api.get("/api/x1/sessions").json["sessions"][0]["id"],
            "number": 1,
            **{"user_id": owner.id, "username": owner.name, "name": "key", "pool_name": "default", "label": "x"},
            **{"agent_id": "a", "slot_id": 0, "token": "det-x", "workload_type": "EXPERIMENT", "resources_id": "r"},
            **{
                "external_experiment_id": "theirs",
                "external_trial_id": "theirs",
                "rest": "",
                "service_id": job.task_id,
            },
        },
        job,
    )


def _rows(kind: str, table: str, condition: str, without: str = "") -> str:
    """A digest of rows, but for columns that time and the controller change (`without`, with commas)."""
    row = f"(to_jsonb(x) - '{{{without}}}'::text[])::text"
    return f"select '{kind}', coalesce(md5(string_agg({row}, '|' order by {row})), '') from {table} x where {condition}"


_TASKS = "(:command_id, :notebook_id, :shell_id, :generic_id)"
_OF_RUNNING = "seq,used_at,archive,state,reason,attempts,setbacks,idle,end_time"
_BY_CONTROLLER = "seq,heartbeat_at,explanation,observed,observed_at,observed_state,absent_since,native_id,submission"
_ROWS = (
    _rows("experiments", "experiments", "id in (:experiment_id, :ended_id)", "seq,search,gc_due"),
    _rows("trial", "trials", "id = :trial_id", "seq,heartbeat_at"),
    _rows("checkpoints", "checkpoints", "trial_id = :trial_id", "seq"),
    _rows("removals", "checkpoint_removals", "checkpoint = cast(:uuid as uuid)"),
    _rows("metrics", "metrics", "trial_id = :trial_id"),
    _rows("streams", "report_streams", "allocation_id = :allocation_id"),
    _rows("logs", "task_logs", "task_id = :task_id and log like '%mallory%'"),
    _rows("lease", "allocations", "id = :allocation_id", _BY_CONTROLLER),
    _rows("nodes", "allocation_nodes", "allocation_id = :allocation_id"),
    _rows("tasks", "standalone_tasks", f"task_id in {_TASKS}", "seq,used_at,archive"),
    # It takes no slot, so that it runs, and ends by itself where there is no TensorBoard.
    _rows("tensorboard", "standalone_tasks", "task_id = :tensorboard_id and reason not like 'killed%'", _OF_RUNNING),
    _rows("workspace", "workspaces", "id = :workspace_id", "seq"),
    _rows("project", "projects", "id = :project_id", "seq"),
    _rows("model", "models", "name = :model_name", "seq"),
    _rows("versions", "model_versions", "model_id in (select id from models where name = :model_name)", "seq"),
    _rows("template", "templates", "name = :template_name"),
    _rows("webhook", "webhooks", "id = :webhook_id"),
    _rows("group", "groups", "id = :group_id"),
    _rows("members", "group_members", "group_id = :group_id"),
    _rows("user", "users", "id = :user_id", "last_auth_at,modified_at"),
    _rows("sessions", "user_sessions", "user_id = :user_id"),
    _rows("roles", "role_assignments", "workspace_id = :workspace_id or user_id = :user_id"),
    _rows("policies", "config_policies", "workspace_id = :workspace_id"),
    _rows("bindings", "pool_bindings", "true"),
)


def fingerprint(engine: Engine, victim: Victim) -> dict[str, str]:
    """A digest of the victim's rows for each kind of object; empty if there are none."""
    with engine.connect() as connection:
        found = {query: connection.execute(text(query), victim.things).one() for query in _ROWS}
    digests = {kind: digest for kind, digest in found.values()}
    missing = {kind for kind, digest in digests.items() if not digest}
    assert missing <= {"removals", "logs", "policies", "bindings", "roles"}, missing
    return digests
