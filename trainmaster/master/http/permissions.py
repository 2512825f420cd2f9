"""The table of permissions: who may call which endpoint. An endpoint without an entry is refused to everybody."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from trainmaster.master.http.not_served import REFUSED
from trainmaster.master.services.access.permissions import Permission as P


class Rule(enum.Enum):
    """Who may call an endpoint that needs no permission."""

    OPEN = "everybody, also without logging in"
    ANYBODY = "everybody who has logged in; the service checks further where others are concerned"
    OWN_JOB = "the job that it is about, and administrators"
    AGENT = "the agent that it is about, with its own secret; a new one with the key of agents"
    PROXY = "users who may use the service behind it; some services ask for credentials of their own"


OPEN, ANYBODY, OWN_JOB, AGENT, PROXY = Rule
V1, X1 = "/api/v1", "/api/x1"

ENDPOINTS: Mapping[str, Rule | P] = {
    # what the master is
    "GET /": OPEN,
    "GET /ui": OPEN,
    "GET /ui/{path:path}": OPEN,
    "GET /ui/a/{mark}/{name:path}": OPEN,
    "GET /info": OPEN,
    "GET /health": OPEN,
    f"GET {V1}/master": OPEN,
    # oneself
    f"POST {V1}/auth/login": OPEN,
    "GET /login": OPEN,
    "POST /login": OPEN,
    "GET /session": OPEN,
    "POST /session": OPEN,
    "DELETE /session": ANYBODY,
    f"POST {X1}/tickets": ANYBODY,
    f"GET {X1}/sessions": ANYBODY,
    f"DELETE {X1}/sessions/{{session_id}}": ANYBODY,
    f"GET {X1}/live": ANYBODY,
    f"POST {V1}/auth/logout": ANYBODY,
    f"GET {V1}/auth/user": ANYBODY,
    f"GET {V1}/me": ANYBODY,
    f"GET {V1}/users/setting": ANYBODY,
    f"POST {V1}/users/setting": ANYBODY,
    f"POST {V1}/users/setting/reset": ANYBODY,
    f"POST {V1}/users/activity": ANYBODY,
    f"GET {V1}/permissions/summary": ANYBODY,
    f"GET {V1}/tokens": P.VIEW_TOKEN,
    f"POST {V1}/tokens": P.CREATE_TOKEN,
    f"PATCH {V1}/tokens/{{token_id}}": P.UPDATE_TOKEN,
    # users, groups, roles
    f"GET {V1}/users": ANYBODY,
    f"POST {V1}/users": P.ADMINISTRATE_USER,
    f"PATCH {V1}/users": P.ADMINISTRATE_USER,
    f"PATCH {V1}/users/assignments": P.UPDATE_GROUP,
    f"GET {V1}/users/{{username}}/by-username": ANYBODY,
    f"GET {V1}/users/{{user_id}}": ANYBODY,
    f"PATCH {V1}/users/{{user_id}}": ANYBODY,
    f"POST {V1}/users/{{user_id}}/password": ANYBODY,
    f"POST {X1}/users/{{user_id}}/password": ANYBODY,
    f"POST {V1}/groups": P.UPDATE_GROUP,
    f"POST {V1}/groups/search": ANYBODY,
    f"GET {V1}/groups/{{group_id}}": ANYBODY,
    f"PUT {V1}/groups/{{group_id}}": P.UPDATE_GROUP,
    f"DELETE {V1}/groups/{{group_id}}": P.UPDATE_GROUP,
    f"POST {V1}/roles/add-assignments": P.ASSIGN_ROLES,
    f"POST {V1}/roles/remove-assignments": P.ASSIGN_ROLES,
    f"POST {V1}/roles/search": ANYBODY,
    f"POST {V1}/roles/search/by-assignability": ANYBODY,
    f"POST {V1}/roles/search/by-ids": ANYBODY,
    f"GET {V1}/roles/search/by-user/{{user_id}}": ANYBODY,
    f"GET {V1}/roles/search/by-group/{{group_id}}": ANYBODY,
    f"GET {V1}/roles/workspace/{{workspace_id}}": P.VIEW_WORKSPACE,
    # pools, queue, agents
    f"GET {V1}/resource-pools": ANYBODY,
    f"POST {X1}/resource-pools/{{name}}/resume": P.UPDATE_AGENTS,
    f"GET {V1}/resource-pools/{{pool_name}}/workspace-bindings": ANYBODY,
    # The service requires MODIFY_RP_WORKSPACE_BINDINGS once the pool may be bound at all.
    f"POST {V1}/resource-pools/{{pool_name}}/workspace-bindings": ANYBODY,
    f"PUT {V1}/resource-pools/{{pool_name}}/workspace-bindings": ANYBODY,
    f"DELETE {V1}/resource-pools/{{pool_name}}/workspace-bindings": P.MODIFY_RP_WORKSPACE_BINDINGS,
    f"GET {V1}/job-queues-v2": ANYBODY,
    f"POST {V1}/job-queues": P.UPDATE_EXPERIMENT,
    f"GET {V1}/agents": ANYBODY,
    f"GET {V1}/agents/{{agent_id}}": ANYBODY,
    f"GET {V1}/agents/{{agent_id}}/slots": ANYBODY,
    f"GET {V1}/agents/{{agent_id}}/slots/{{slot_id}}": ANYBODY,
    f"POST {V1}/agents/{{agent_id}}/enable": P.UPDATE_AGENTS,
    f"POST {V1}/agents/{{agent_id}}/disable": P.UPDATE_AGENTS,
    f"POST {V1}/agents/{{agent_id}}/slots/{{slot_id}}/enable": P.UPDATE_AGENTS,
    f"POST {V1}/agents/{{agent_id}}/slots/{{slot_id}}/disable": P.UPDATE_AGENTS,
    f"DELETE {X1}/agent-secrets/{{agent_id}}": P.UPDATE_AGENTS,
    f"POST {X1}/agents/{{agent_id}}/enrol": AGENT,
    f"POST {X1}/agents/{{agent_id}}/sync": AGENT,
    f"GET {X1}/agents/{{agent_id}}/orders": AGENT,
    f"GET {X1}/agents/{{agent_id}}/jobs/{{token}}/files": AGENT,
    f"PUT {X1}/agents/{{agent_id}}/jobs/{{token}}/remains": AGENT,
    # jobs
    f"POST {X1}/allocations/{{allocation_id}}/lease": OWN_JOB,
    f"GET {X1}/allocations/{{allocation_id}}/context": OWN_JOB,
    f"GET {X1}/allocations/{{allocation_id}}/data/{{name}}": OWN_JOB,
    f"GET {X1}/allocations/{{allocation_id}}/events": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/events": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/reports": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/exit": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/checkpoints/{{uuid}}/begin": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/checkpoints/{{uuid}}/sign": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/checkpoints/{{uuid}}/finish": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/checkpoints/{{uuid}}/sent": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/checkpoints/{{uuid}}/copy": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/checkpoints/{{uuid}}/done": OWN_JOB,
    f"POST {X1}/allocations/{{allocation_id}}/checkpoints/{{uuid}}/abandon": OWN_JOB,
    f"POST {V1}/allocations/{{allocation_id}}/all_gather": OWN_JOB,
    f"POST {V1}/allocations/{{allocation_id}}/notify_container_running": OWN_JOB,
    f"GET {V1}/allocations/{{allocation_id}}/signals/preemption": OWN_JOB,
    f"POST {V1}/allocations/{{allocation_id}}/signals/ack_preemption": OWN_JOB,
    f"POST {V1}/allocations/{{allocation_id}}/signals/pending_preemption": OWN_JOB,
    f"POST {V1}/allocations/{{allocation_id}}/acceleratorData": OWN_JOB,
    f"POST {V1}/allocations/{{allocation_id}}/proxy_address": OWN_JOB,
    f"POST {V1}/allocations/{{allocation_id}}/ready": OWN_JOB,
    f"POST {V1}/allocations/{{allocation_id}}/waiting": OWN_JOB,
    f"POST {V1}/allocations/{{allocation_id}}/resources/{{resources_id}}/daemon": OWN_JOB,
    f"GET {V1}/allocations/{{allocation_id}}/resources/{{resources_id}}/rendezvous": OWN_JOB,
    f"GET {V1}/tasks/{{task_id}}/acceleratorData": P.VIEW_EXPERIMENT_METADATA,
    f"POST {V1}/trials/{{trial_id}}/runner/metadata": OWN_JOB,
    f"POST {V1}/trial-source-info": OWN_JOB,
    # experiments: looking
    f"GET {V1}/experiments": P.VIEW_EXPERIMENT_METADATA,
    f"POST {V1}/experiments-search": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/experiments/table": P.VIEW_EXPERIMENT_METADATA,
    f"POST {X1}/checkpoints/pins": P.UPDATE_EXPERIMENT_METADATA,
    f"GET {X1}/storage/usage": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/home": ANYBODY,
    f"GET {X1}/experiments/{{experiment_id}}/board": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/experiments/{{experiment_id}}/curves": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/experiments/{{experiment_id}}/story": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/experiments/{{experiment_id}}/rungs": P.VIEW_EXPERIMENT_METADATA,
    f"POST {X1}/experiments/{{experiment_id}}/what-if": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/experiments/{{experiment_id}}/search-plan": P.VIEW_EXPERIMENT_METADATA,
    f"POST {X1}/experiments/{{experiment_id}}/ask": P.UPDATE_EXPERIMENT,
    f"POST {X1}/experiments/{{experiment_id}}/tell": P.UPDATE_EXPERIMENT,
    f"GET {X1}/experiments/{{experiment_id}}/search-questions": P.UPDATE_EXPERIMENT,
    f"POST {X1}/experiments/{{experiment_id}}/search-questions/{{number}}/answer": P.UPDATE_EXPERIMENT,
    f"POST {X1}/search/simulate": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/compare": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/experiments/{{experiment_id}}/checkpoints": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/trials/{{trial_id}}/checkpoints": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/trials/{{trial_id}}/machine": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/trials/{{trial_id}}/board": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/trials/{{trial_id}}/attempts": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/trials/{{trial_id}}/curves": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiment/labels": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiments/metrics-stream/metric-names": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiments/{{experiment_id}}": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiments/{{experiment_id}}/trials": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiments/{{experiment_id}}/checkpoints": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiments/{{experiment_id}}/validation-history": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiments/{{experiment_id}}/searcher/best_searcher_validation_metric": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/experiments/{{experiment_id}}/git": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"GET {V1}/experiments/{{experiment_id}}/model_def": P.VIEW_EXPERIMENT_ARTIFACTS,
    "GET /experiments/{experiment_id}/preview_gc": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/metrics/trial_metrics": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/metrics/training_metrics": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/metrics/validation_metrics": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/{{trial_id}}": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/{{trial_id}}/workloads": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/{{trial_id}}/checkpoints": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/{{trial_id}}/remaining_log_retention_days": P.VIEW_EXPERIMENT_METADATA,
    f"GET {X1}/trials/{{trial_id}}/story": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/{{trial_id}}/logs": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"GET {V1}/trials/{{trial_id}}/logs/fields": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"GET {V1}/tasks/{{task_id}}": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/tasks/{{task_id}}/logs": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"GET {V1}/tasks/{{task_id}}/logs/fields": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"GET {X1}/tasks/{{task_id}}/log": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"GET {V1}/tasks/{{task_id}}/context_directory": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"GET {V1}/allocations/{{allocation_id}}": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/checkpoints/{{uuid}}": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"GET {X1}/checkpoints/{{uuid}}/files": P.VIEW_EXPERIMENT_ARTIFACTS,
    "GET /checkpoints/{checkpoint_uuid}": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"GET {V1}/checkpoints/{{checkpoint_uuid}}/metrics": P.VIEW_EXPERIMENT_METADATA,
    # experiments: doing
    f"POST {V1}/experiments": P.CREATE_EXPERIMENT,
    f"POST {V1}/preview-hp-search": ANYBODY,
    f"PATCH {V1}/experiments/{{experiment_id}}": P.UPDATE_EXPERIMENT_METADATA,
    f"DELETE {V1}/experiments/{{experiment_id}}": P.DELETE_EXPERIMENT,
    f"POST {V1}/experiments/{{experiment_id}}/pause": P.UPDATE_EXPERIMENT,
    f"POST {V1}/experiments/{{experiment_id}}/activate": P.UPDATE_EXPERIMENT,
    f"POST {V1}/experiments/{{experiment_id}}/cancel": P.UPDATE_EXPERIMENT,
    f"POST {V1}/experiments/{{experiment_id}}/kill": P.UPDATE_EXPERIMENT,
    f"POST {V1}/experiments/continue": P.UPDATE_EXPERIMENT,
    f"POST {V1}/experiments/{{experiment_id}}/archive": P.UPDATE_EXPERIMENT_METADATA,
    f"POST {V1}/experiments/{{experiment_id}}/unarchive": P.UPDATE_EXPERIMENT_METADATA,
    f"PUT {V1}/experiments/{{experiment_id}}/labels/{{label:path}}": P.UPDATE_EXPERIMENT_METADATA,
    f"DELETE {V1}/experiments/{{experiment_id}}/labels/{{label:path}}": P.UPDATE_EXPERIMENT_METADATA,
    f"POST {V1}/experiments/{{experiment_id}}/move": P.UPDATE_EXPERIMENT_METADATA,
    f"DELETE {V1}/experiments/{{experiment_id}}/tensorboard-files": P.UPDATE_EXPERIMENT,
    f"PUT {V1}/experiments/{{experiment_id}}/retain_logs": P.UPDATE_EXPERIMENT,
    f"PUT {V1}/trials/{{trial_id}}/retain_logs": P.UPDATE_EXPERIMENT,
    f"POST {V1}/trials/{{trial_id}}/kill": P.UPDATE_EXPERIMENT,
    f"DELETE {V1}/checkpoints": P.UPDATE_EXPERIMENT,
    f"POST {V1}/checkpoints/rm": P.UPDATE_EXPERIMENT,
    f"POST {V1}/checkpoints/{{checkpoint_uuid}}/metadata": P.UPDATE_EXPERIMENT_METADATA,
    f"POST {V1}/cleanup_logs": P.UPDATE_MASTER_CONFIG,
    f"POST {V1}/projects/{{project_id}}/experiments/activate": P.UPDATE_EXPERIMENT,
    f"POST {V1}/projects/{{project_id}}/experiments/pause": P.UPDATE_EXPERIMENT,
    f"POST {V1}/projects/{{project_id}}/experiments/cancel": P.UPDATE_EXPERIMENT,
    f"POST {V1}/projects/{{project_id}}/experiments/kill": P.UPDATE_EXPERIMENT,
    f"POST {V1}/projects/{{project_id}}/experiments/archive": P.UPDATE_EXPERIMENT_METADATA,
    f"POST {V1}/projects/{{project_id}}/experiments/unarchive": P.UPDATE_EXPERIMENT_METADATA,
    f"DELETE {V1}/projects/{{project_id}}/experiments/delete": P.DELETE_EXPERIMENT,
    f"POST {V1}/projects/{{project_id}}/experiments/move": P.UPDATE_EXPERIMENT_METADATA,
    f"PUT {V1}/projects/{{project_id}}/experiments/retain_logs": P.UPDATE_EXPERIMENT,
    # workspaces, projects
    f"GET {V1}/workspaces": P.VIEW_WORKSPACE,
    f"POST {V1}/workspaces": P.CREATE_WORKSPACE,
    f"GET {V1}/workspaces/{{workspace_id}}": P.VIEW_WORKSPACE,
    f"PATCH {V1}/workspaces/{{workspace_id}}": P.UPDATE_WORKSPACE,
    f"DELETE {V1}/workspaces/{{workspace_id}}": P.DELETE_WORKSPACE,
    f"POST {V1}/workspaces/{{workspace_id}}/archive": P.UPDATE_WORKSPACE,
    f"POST {V1}/workspaces/{{workspace_id}}/unarchive": P.UPDATE_WORKSPACE,
    f"POST {V1}/workspaces/{{workspace_id}}/pin": P.VIEW_WORKSPACE,
    f"POST {V1}/workspaces/{{workspace_id}}/unpin": P.VIEW_WORKSPACE,
    f"GET {V1}/workspaces/{{workspace_id}}/available-resource-pools": P.VIEW_WORKSPACE,
    f"GET {V1}/workspaces/{{workspace_id}}/projects": P.VIEW_PROJECT,
    f"POST {V1}/workspaces/{{workspace_id}}/projects": P.CREATE_PROJECT,
    f"GET {V1}/projects/key/{{key}}": P.VIEW_PROJECT,
    f"GET {V1}/projects/{{project_id}}": P.VIEW_PROJECT,
    f"PATCH {V1}/projects/{{project_id}}": P.UPDATE_PROJECT,
    f"DELETE {V1}/projects/{{project_id}}": P.DELETE_PROJECT,
    f"POST {V1}/projects/{{project_id}}/archive": P.UPDATE_PROJECT,
    f"POST {V1}/projects/{{project_id}}/unarchive": P.UPDATE_PROJECT,
    f"POST {V1}/projects/{{project_id}}/move": P.DELETE_PROJECT,
    f"POST {V1}/projects/{{project_id}}/notes": P.UPDATE_PROJECT,
    f"PUT {V1}/projects/{{project_id}}/notes": P.UPDATE_PROJECT,
    # models, templates
    f"GET {V1}/model/labels": P.VIEW_MODEL_REGISTRY,
    f"GET {V1}/models": P.VIEW_MODEL_REGISTRY,
    f"POST {V1}/models": P.CREATE_MODEL_REGISTRY,
    f"GET {V1}/models/{{model_name}}": P.VIEW_MODEL_REGISTRY,
    f"PATCH {V1}/models/{{model_name}}": P.EDIT_MODEL_REGISTRY,
    f"DELETE {V1}/models/{{model_name}}": P.DELETE_MODEL_REGISTRY,
    f"POST {V1}/models/{{model_name}}/archive": P.EDIT_MODEL_REGISTRY,
    f"POST {V1}/models/{{model_name}}/unarchive": P.EDIT_MODEL_REGISTRY,
    f"POST {V1}/models/{{model_name}}/move": P.EDIT_MODEL_REGISTRY,
    f"GET {V1}/models/{{model_name}}/versions": P.VIEW_MODEL_REGISTRY,
    f"POST {V1}/models/{{model_name}}/versions": P.EDIT_MODEL_REGISTRY,
    f"GET {V1}/models/{{model_name}}/versions/{{version}}": P.VIEW_MODEL_REGISTRY,
    f"PATCH {V1}/models/{{model_name}}/versions/{{version}}": P.EDIT_MODEL_REGISTRY,
    f"DELETE {V1}/models/{{model_name}}/versions/{{version}}": P.DELETE_MODEL_VERSION,
    f"GET {V1}/models/{{model_name}}/versions/{{version}}/metrics": P.VIEW_MODEL_REGISTRY,
    f"GET {X1}/models/{{model_name}}/versions/{{version}}/lineage": P.VIEW_MODEL_REGISTRY,
    f"GET {X1}/models/{{model_name}}/aliases": P.VIEW_MODEL_REGISTRY,
    f"PUT {X1}/models/{{model_name}}/aliases/{{alias}}": P.EDIT_MODEL_REGISTRY,
    f"DELETE {X1}/models/{{model_name}}/aliases/{{alias}}": P.EDIT_MODEL_REGISTRY,
    f"GET {V1}/templates": P.VIEW_TEMPLATES,
    f"GET {V1}/templates/{{template_name}}": P.VIEW_TEMPLATES,
    f"POST {V1}/templates/{{template_name}}": P.CREATE_TEMPLATES,
    f"PUT {V1}/templates/{{template_name}}": P.UPDATE_TEMPLATES,
    f"PATCH {V1}/templates/{{template_name}}": P.UPDATE_TEMPLATES,
    f"DELETE {V1}/templates/{{template_name}}": P.DELETE_TEMPLATES,
    f"PATCH {V1}/template/rename": P.UPDATE_TEMPLATES,
    "GET /stream": ANYBODY,
    # webhooks
    f"GET {V1}/webhooks": ANYBODY,
    f"POST {V1}/webhooks": P.EDIT_WEBHOOKS,
    f"POST {V1}/webhooks/custom": P.UPDATE_EXPERIMENT_METADATA,
    f"PATCH {V1}/webhooks/{{webhook_id}}": P.EDIT_WEBHOOKS,
    f"DELETE {V1}/webhooks/{{webhook_id}}": P.EDIT_WEBHOOKS,
    f"POST {V1}/webhooks/{{webhook_id}}/test": P.EDIT_WEBHOOKS,
    # policies, the banner
    f"GET {V1}/config-policies/global/{{workload_type}}": P.VIEW_GLOBAL_CONFIG_POLICIES,
    f"PUT {V1}/config-policies/global/{{workload_type}}": P.MODIFY_GLOBAL_CONFIG_POLICIES,
    f"DELETE {V1}/config-policies/global/{{workload_type}}": P.MODIFY_GLOBAL_CONFIG_POLICIES,
    f"GET {V1}/config-policies/workspaces/{{workspace_id}}/{{workload_type}}": P.VIEW_WORKSPACE_CONFIG_POLICIES,
    f"PUT {V1}/config-policies/workspaces/{{workspace_id}}/{{workload_type}}": P.MODIFY_WORKSPACE_CONFIG_POLICIES,
    f"DELETE {V1}/config-policies/workspaces/{{workspace_id}}/{{workload_type}}": P.MODIFY_WORKSPACE_CONFIG_POLICIES,
    f"GET {V1}/master/cluster_message": P.UPDATE_MASTER_CONFIG,
    f"PUT {V1}/master/cluster_message": P.UPDATE_MASTER_CONFIG,
    f"DELETE {V1}/master/cluster_message": P.UPDATE_MASTER_CONFIG,
    # trials that run elsewhere, and what trainings report call by call
    f"PUT {V1}/experiments/by-external-id/{{external_experiment_id:path}}": P.CREATE_EXPERIMENT,
    f"POST {V1}/trials": P.CREATE_EXPERIMENT,
    f"PUT {V1}/trials": P.CREATE_EXPERIMENT,
    f"GET {V1}/trials/by-external-id/{{external_experiment_id:path}}/{{external_trial_id:path}}": (
        P.VIEW_EXPERIMENT_METADATA
    ),
    f"POST {V1}/trials/{{trial_id}}/start": P.UPDATE_EXPERIMENT,
    f"PATCH {V1}/trials/{{trial_id}}": P.UPDATE_EXPERIMENT,
    f"POST {V1}/trials/{{trial_id}}/metrics": ANYBODY,
    f"POST {V1}/trials/{{trial_id}}/training_metrics": ANYBODY,
    f"POST {V1}/trials/{{trial_id}}/validation_metrics": ANYBODY,
    f"POST {V1}/trials/{{trial_id}}/progress": ANYBODY,
    f"POST {V1}/trials/{{trial_id}}/early_exit": ANYBODY,
    f"POST {V1}/checkpoints": ANYBODY,
    f"PATCH {V1}/checkpoints": ANYBODY,
    f"POST {V1}/runs/start": ANYBODY,
    f"GET {V1}/runs/{{trial_id}}/metadata": P.VIEW_EXPERIMENT_METADATA,
    f"POST {V1}/runs/{{trial_id}}/metadata": ANYBODY,
    f"POST {V1}/task/logs": ANYBODY,
    "POST /task-logs": ANYBODY,
    # the master as a whole
    f"GET {V1}/master/config": P.VIEW_MASTER_CONFIG,
    f"PATCH {V1}/master/config": P.UPDATE_MASTER_CONFIG,
    f"GET {V1}/master/logs": P.VIEW_MASTER_LOGS,
    f"GET {V1}/master/telemetry": ANYBODY,
    f"GET {V1}/tasks": P.VIEW_EXPERIMENT_METADATA,
    "GET /tasks": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/tasks/count": ANYBODY,
    f"GET {V1}/job-queues": ANYBODY,
    f"GET {V1}/job-queues/stats": ANYBODY,
    f"GET {V1}/resources/allocation/raw": P.VIEW_CLUSTER_USAGE,
    f"GET {X1}/usage": P.VIEW_CLUSTER_USAGE,
    f"GET {V1}/resources/allocation/aggregated": P.VIEW_CLUSTER_USAGE,
    "GET /resources/allocation/raw": P.VIEW_CLUSTER_USAGE,
    "GET /resources/allocation/aggregated": P.VIEW_CLUSTER_USAGE,
    "GET /resources/allocation/allocations-csv": P.VIEW_CLUSTER_USAGE,
    f"GET {V1}/health": OPEN,
    # series, files
    f"GET {V1}/experiments/{{experiment_id}}/metrics-stream/batches": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiments/{{experiment_id}}/metrics-stream/trials-sample": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiments/{{experiment_id}}/metrics-stream/trials-snapshot": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/time-series": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/experiments/{{experiment_id}}/file_tree": P.VIEW_EXPERIMENT_ARTIFACTS,
    f"POST {V1}/experiments/{{experiment_id}}/file": P.VIEW_EXPERIMENT_ARTIFACTS,
    # runs, a project's table, the profiler
    f"POST {V1}/runs": P.VIEW_EXPERIMENT_METADATA,
    f"POST {V1}/runs/pause": P.UPDATE_EXPERIMENT,
    f"POST {V1}/runs/resume": P.UPDATE_EXPERIMENT,
    f"POST {V1}/runs/kill": P.UPDATE_EXPERIMENT,
    f"POST {V1}/runs/archive": P.UPDATE_EXPERIMENT_METADATA,
    f"POST {V1}/runs/unarchive": P.UPDATE_EXPERIMENT_METADATA,
    f"POST {V1}/runs/delete": P.DELETE_EXPERIMENT,
    f"POST {V1}/runs/move": P.UPDATE_EXPERIMENT_METADATA,
    f"GET {V1}/projects/{{project_id}}/columns": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/projects/{{project_id}}/experiments/metric-ranges": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/projects/{{project_id}}/metadata/{{key:path}}": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/user/projects/activity": ANYBODY,
    f"GET {V1}/trials/{{trial_id}}/profiler/available_series": P.VIEW_EXPERIMENT_METADATA,
    f"GET {V1}/trials/{{trial_id}}/profiler/metrics": P.VIEW_EXPERIMENT_METADATA,
    # commands, notebooks, shells, TensorBoards and generic tasks
    f"GET {V1}/commands": P.VIEW_NSC,
    f"POST {V1}/commands": P.CREATE_NSC,
    f"GET {V1}/commands/{{command_id}}": P.VIEW_NSC,
    f"POST {V1}/commands/{{command_id}}/kill": P.UPDATE_NSC,
    f"POST {V1}/commands/{{command_id}}/set_priority": P.UPDATE_NSC,
    f"GET {V1}/notebooks": P.VIEW_NSC,
    f"POST {V1}/notebooks": P.CREATE_NSC,
    f"GET {V1}/notebooks/{{notebook_id}}": P.VIEW_NSC,
    f"POST {V1}/notebooks/{{notebook_id}}/kill": P.UPDATE_NSC,
    f"POST {V1}/notebooks/{{notebook_id}}/set_priority": P.UPDATE_NSC,
    f"PUT {V1}/notebooks/{{notebook_id}}/report_idle": OWN_JOB,
    f"GET {V1}/shells": P.VIEW_NSC,
    f"POST {V1}/shells": P.CREATE_NSC,
    f"GET {V1}/shells/{{shell_id}}": P.VIEW_NSC,
    f"POST {V1}/shells/{{shell_id}}/kill": P.UPDATE_NSC,
    f"POST {V1}/shells/{{shell_id}}/set_priority": P.UPDATE_NSC,
    f"GET {V1}/tensorboards": P.VIEW_NSC,
    f"POST {V1}/tensorboards": P.CREATE_NSC,
    f"GET {V1}/tensorboards/{{tensorboard_id}}": P.VIEW_NSC,
    f"POST {V1}/tensorboards/{{tensorboard_id}}/kill": P.UPDATE_NSC,
    f"POST {V1}/tensorboards/{{tensorboard_id}}/set_priority": P.UPDATE_NSC,
    f"POST {V1}/generic-tasks": P.CREATE_NSC,
    f"GET {V1}/tasks/{{task_id}}/config": P.VIEW_NSC,
    f"POST {V1}/tasks/{{task_id}}/kill": P.UPDATE_NSC,
    f"POST {V1}/tasks/{{task_id}}/pause": P.UPDATE_NSC,
    f"POST {V1}/tasks/{{task_id}}/unpause": P.UPDATE_NSC,
    # services in jobs
    "GET /det/interactive/{task_id}/{rest:path}": OPEN,  # sends on to the next
    **{
        f"{method} /proxy/{{service_id}}{rest}": PROXY
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
        for rest in ("", "/{path:path}")
    },
    # what is refused to everybody
    **dict.fromkeys(REFUSED, OPEN),
}

# Endpoints that without roles answer everybody, with secrets masked for users without the permission.
MASKED = frozenset({f"GET {V1}/master/logs"})

# Endpoints that users may call, but programs in their jobs may not: a job needs none of them, and somebody who stole
# its token would gain more than the job's life.
CLOSED_INSIDE = (
    "What runs in a job acts as its owner, but not for accounts, tokens, tickets, sessions, and what becomes part of "
    "other jobs (templates, webhooks, policies, settings of workspaces): log in with `det user login` for that."
)
_CLOSED = frozenset({"tokens", "tickets", "sessions"})
_READ_ONLY = frozenset(
    {"users", "groups", "roles", "templates", "template", "webhooks", "config-policies", "agents", "agent-secrets"}
    | {"resource-pools", "master", "cleanup_logs", "session"}
)
# A workspace determines where its jobs keep their checkpoints, and the account that they run as.
_CHANGES_JOBS = frozenset({f"PATCH {V1}/workspaces/{{workspace_id}}"})
_READS = frozenset(
    {f"POST {V1}/groups/search", f"POST {V1}/users/activity", f"POST {V1}/webhooks/custom"}
    | {endpoint for endpoint in ENDPOINTS if endpoint.startswith(f"POST {V1}/roles/search")}
)


def closed_inside(endpoint: str) -> bool:
    """Whether it is closed to a program that acts as its job's owner. `endpoint`: a key of `ENDPOINTS`."""
    method, _, path = endpoint.partition(" ")
    subject = path.removeprefix(V1).removeprefix(X1).split("/")[1]
    if subject in _CLOSED or endpoint in _CHANGES_JOBS:
        return True
    return subject in _READ_ONLY and method not in ("GET", "HEAD") and endpoint not in _READS
