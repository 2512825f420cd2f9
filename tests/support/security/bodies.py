"""Request bodies for calling every endpoint on another user's objects."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from tests.support.api.jobs import config

Json = dict[str, Any]
Body = Callable[[Json], Any]

METRIC = {"stepsCompleted": 9, "metrics": {"avgMetrics": {"mallory": 1.0}}, "trialRunId": 1}
FILTER = {"limit": 50}


def _ids(key: str, name: str) -> Body:
    return lambda t: {key: [t[name]], "projectId": t["project_id"], "destinationProjectId": t["project_id"]}


# What is sent where the address does not say whose thing it is. None: it is about nothing that somebody has; what it
# would make or show is the caller's own.
BODIES: dict[str, Body | None] = {
    "DELETE /api/v1/checkpoints": _ids("checkpointUuids", "uuid"),
    "POST /api/x1/allocations/{allocation_id}/events": lambda t: {"files": [{"path": "a", "size": 1}]},
    "POST /api/x1/checkpoints/pins": lambda t: {"checkpointUuids": [t["uuid"]], "pinned": True},
    "PUT /api/x1/models/{model_name}/aliases/{alias}": lambda t: {"version": 1},
    "POST /api/v1/checkpoints/rm": lambda t: {
        "checkpoints": {"checkpointUuids": [t["uuid"]]},
        "checkpointUuids": [t["uuid"]],
        "checkpointGlobs": ["**/*"],
    },
    "PATCH /api/v1/checkpoints": lambda t: {"checkpoints": [{"uuid": t["uuid"], "resources": {"resources": {}}}]},
    "POST /api/v1/checkpoints": lambda t: {
        "uuid": str(uuid.uuid4()),
        "taskId": t["task_id"],
        "resources": {},
        "metadata": {"steps_completed": 7},
    },
    "PATCH /api/v1/template/rename": lambda t: {"oldName": t["template_name"], "newName": "mallory"},
    "PATCH /api/v1/users": lambda t: {"userIds": [t["user_id"]], "activate": False},
    "PATCH /api/v1/users/assignments": lambda t: {
        "userIds": [t["user_id"]],
        "addGroups": [],
        "removeGroups": [t["group_id"]],
    },
    "POST /api/v1/experiments/continue": lambda t: {"id": t["ended_id"]},
    "POST /api/v1/experiments": lambda t: {"config": config(), "activate": False, "projectId": t["project_id"]},
    "POST /api/v1/generic-tasks": lambda t: {
        "config": "entrypoint: [sleep, '1']",
        "projectId": t["project_id"],
        "parentId": t["generic_id"],
    },
    "POST /api/v1/job-queues": lambda t: {"updates": [{"jobId": t["job_id"], "priority": 1}]},
    "POST /api/v1/roles/add-assignments": lambda t: {
        "userRoleAssignments": [
            {"userId": t["me"], "roleAssignment": {"role": {"roleId": 5}, "scopeWorkspaceId": t["workspace_id"]}}
        ]
    },
    "POST /api/v1/roles/remove-assignments": lambda t: {
        "userRoleAssignments": [
            {"userId": t["user_id"], "roleAssignment": {"role": {"roleId": 5}, "scopeWorkspaceId": t["workspace_id"]}}
        ]
    },
    **{
        f"POST /api/v1/runs/{verb}": _ids("runIds", "trial_id")
        for verb in ("archive", "delete", "kill", "move", "pause", "resume", "unarchive")
    },
    "POST /api/v1/runs/start": lambda t: {
        "runId": t["trial_id"],
        "checkpointStorage": {"type": "shared_fs", "host_path": "/tmp"},
    },
    "POST /api/v1/task/logs": lambda t: {"logs": [{"taskId": t["task_id"], "log": "mallory"}]},
    "POST /task-logs": lambda t: [{"task_id": t["task_id"], "log": "mallory"}],
    "POST /api/v1/tokens": lambda t: {"userId": t["user_id"], "description": "mallory"},
    "POST /api/v1/trial-source-info": lambda t: {
        "trialSourceInfo": {
            "trialId": t["trial_id"],
            "checkpointUuid": t["uuid"],
            "trialSourceInfoType": "TRIAL_SOURCE_INFO_TYPE_INFERENCE",
        }
    },
    "POST /api/v1/trials": lambda t: {"experimentId": t["experiment_id"], "hparams": {}, "unmanaged": True},
    "PUT /api/v1/trials": lambda t: {
        "createTrialRequest": {"experimentId": t["experiment_id"], "hparams": {}, "unmanaged": True},
        "externalTrialId": "x",
    },
    "POST /api/v1/webhooks": lambda t: {
        "name": "mallory",
        "url": "https://hooks.example/m",
        "workspaceId": t["workspace_id"],
        "mode": "WEBHOOK_MODE_SPECIFIC",
        "triggers": [{"triggerType": "TRIGGER_TYPE_CUSTOM"}],
    },
    "POST /api/v1/webhooks/custom": lambda t: {"experimentId": t["experiment_id"], "data": {"title": "mallory"}},
    "POST /api/v1/models": lambda t: {"name": f"mallory-{uuid.uuid4().hex}", "workspaceId": t["workspace_id"]},
    **{
        f"POST /api/v1/{kind}": lambda t: {"config": {"no such key": 1}, "workspaceId": t["workspace_id"]}
        for kind in ("commands", "notebooks", "shells", "tensorboards")
    },
    "POST /api/v1/users/activity": lambda t: {
        "activityType": "ACTIVITY_TYPE_GET",
        "entityType": "ENTITY_TYPE_PROJECT",
        "entityId": t["project_id"],
    },
    "POST /api/x1/search/simulate": lambda t: {"config": config(), "experimentId": t["experiment_id"]},
    "POST /api/v1/experiments-search": lambda t: FILTER,
    "POST /api/v1/runs": lambda t: FILTER,
    "POST /api/x1/tickets": None,
    "POST /api/v1/cleanup_logs": None,
    "DELETE /api/v1/master/cluster_message": None,
    "PUT /api/v1/master/cluster_message": None,
    "PATCH /api/v1/master/config": None,
    "POST /api/v1/groups": None,
    "POST /api/v1/groups/search": None,
    "POST /api/v1/preview-hp-search": None,
    "POST /api/v1/roles/search": None,
    "POST /api/v1/roles/search/by-assignability": None,
    "POST /api/v1/roles/search/by-ids": None,
    "POST /api/v1/users": None,
    "POST /api/v1/users/setting": None,
    "POST /api/v1/users/setting/reset": None,
    "POST /api/v1/workspaces": None,
    # Whose thing it is stands in the address; these bodies make the call one that would do harm.
    "PUT /api/v1/templates/{template_name}": lambda t: {"config": {"description": "mallory"}},
    "PATCH /api/v1/templates/{template_name}": lambda t: {"description": "mallory"},
    "PATCH /api/v1/experiments/{experiment_id}": lambda t: {"name": "mallory", "notes": "mallory"},
    "POST /api/v1/experiments/{experiment_id}/move": lambda t: {"destinationProjectId": 1},
    "PATCH /api/v1/workspaces/{workspace_id}": lambda t: {"name": "mallory"},
    "PATCH /api/v1/projects/{project_id}": lambda t: {"name": "mallory"},
    "POST /api/v1/projects/{project_id}/move": lambda t: {"destinationWorkspaceId": 1},
    "PATCH /api/v1/models/{model_name}": lambda t: {"description": "mallory"},
    "POST /api/v1/models/{model_name}/versions": lambda t: {"checkpointUuid": t["uuid"], "comment": "mallory"},
    "PATCH /api/v1/models/{model_name}/versions/{version}": lambda t: {"comment": "mallory"},
    "POST /api/v1/users/{user_id}/password": lambda t: "Mallory-1",
    "PATCH /api/v1/users/{user_id}": lambda t: {"displayName": "mallory"},
    "PUT /api/v1/groups/{group_id}": lambda t: {"name": "mallory", "addUsers": [t["me"]]},
    "PATCH /api/v1/tokens/{token_id}": lambda t: {"setRevoked": True, "description": "mallory"},
    "PATCH /api/v1/webhooks/{webhook_id}": lambda t: {"url": "https://mallory.example/"},
    "PUT /api/v1/config-policies/workspaces/{workspace_id}/{workload_type}": lambda t: {
        "configPolicies": "constraints: {priority_limit: 1}"
    },
    "PATCH /api/v1/trials/{trial_id}": lambda t: {"state": "STATE_ERROR"},
    "POST /api/v1/trials/{trial_id}/metrics": lambda t: {"group": "validation", "metrics": METRIC},
    "POST /api/v1/trials/{trial_id}/training_metrics": lambda t: METRIC,
    "POST /api/v1/trials/{trial_id}/validation_metrics": lambda t: METRIC,
    "POST /api/v1/trials/{trial_id}/progress": lambda t: {"progress": 0.9},
    "POST /api/v1/trials/{trial_id}/early_exit": lambda t: {"reason": "EXITED_REASON_INVALID_HP"},
    "POST /api/v1/runs/{trial_id}/metadata": lambda t: {"metadata": {"mallory": 1}},
    "POST /api/x1/allocations/{allocation_id}/lease": lambda t: {
        "job_id": "m",
        "node_rank": 0,
        "num_nodes": 1,
        "node_name": "m",
        "slot_ids": [],
    },
    "POST /api/x1/allocations/{allocation_id}/exit": lambda t: {"node_rank": 0, "exit_code": 0, "version": 1},
    "POST /api/x1/allocations/{allocation_id}/reports": lambda t: {
        "stream": "core",
        "first": 2,
        "records": [{"t": 1.0, "kind": "progress", "progress": 0.5}],
        "node_rank": 0,
    },
    "POST /api/v1/allocations/{allocation_id}/proxy_address": lambda t: {"proxyAddress": "10.9.9.9"},
    "POST /api/v1/allocations/{allocation_id}/all_gather": lambda t: {
        "requestUuid": str(uuid.uuid4()),
        "numPeers": 1,
        "data": {},
    },
    "PUT /api/v1/notebooks/{notebook_id}/report_idle": lambda t: {"idle": True},
}
