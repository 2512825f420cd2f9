"""What a master's answers hold, as types for type checkers.

Written by `scripts/generate` from the OpenAPI document that the master serves; do not edit.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

Json = dict[str, Any]


class AgentUserGroup(TypedDict):
    agentUid: NotRequired[int | None]
    agentUser: NotRequired[str | None]
    agentGid: NotRequired[int | None]
    agentGroup: NotRequired[str | None]


class Checkpoint(TypedDict):
    uuid: str
    taskId: str | None
    allocationId: str | None
    reportTime: str
    state: str
    resources: Json
    metadata: Json
    training: Json
    storageId: int | None
    storage: Json


class Experiment(TypedDict):
    id: int
    name: str
    description: str
    notes: str
    labels: list[str]
    state: str
    stateReason: str
    archived: bool
    startTime: str
    endTime: str | None
    duration: int | None
    progress: float
    numTrials: int
    trialIds: list[int]
    username: str
    displayName: str
    userId: int
    projectId: int
    projectName: str
    projectOwnerId: int
    workspaceId: int
    workspaceName: str
    parentArchived: bool
    resourcePool: str
    jobId: str
    searcherType: str
    searcherMetric: str
    forkedFrom: int | None
    bestTrialId: int | None
    bestTrialSearcherMetric: float | None
    checkpointCount: int
    checkpointSize: str
    modelDefinitionSize: int
    hyperparameters: Json
    config: Json
    originalConfig: str
    unmanaged: bool
    externalExperimentId: str | None


class LogBins(TypedDict):
    lines: list[int]
    warnings: list[int]
    errors: list[int]
    matches: list[int] | None


class LogWindow(TypedDict):
    lines: list[WindowLine]
    position: int
    total: int
    newest: int
    began: float | None
    focus: int | None
    match: int | None
    matches: int | None
    matched: list[int]
    bins: LogBins | None


class Model(TypedDict):
    id: int
    name: str
    description: str
    notes: str
    labels: list[str]
    metadata: Json
    archived: bool
    creationTime: str
    lastUpdatedTime: str
    numVersions: int
    userId: int
    username: str
    workspaceId: int


class ModelVersion(TypedDict):
    id: int
    model: Model
    checkpoint: Checkpoint
    version: int
    name: str
    comment: str
    notes: str
    labels: list[str]
    metadata: Json
    creationTime: str
    lastUpdatedTime: str
    userId: int
    username: str


class Pagination(TypedDict):
    offset: int
    limit: int
    startIndex: int
    endIndex: int
    total: int


class Project(TypedDict):
    id: int
    name: str
    key: str
    description: str
    archived: bool
    immutable: bool
    notes: list[Json]
    workspaceId: int
    workspaceName: str
    userId: int
    username: str
    numExperiments: int
    numActiveExperiments: int
    numRuns: int
    lastExperimentStartedAt: str | None
    state: str
    errorMessage: str


class ResourcePool(TypedDict):
    name: str
    description: str
    type: NotRequired[str]
    numAgents: int
    slotsAvailable: int
    slotsUsed: int
    slotType: str
    slotsPerAgent: int
    auxContainerCapacity: int
    auxContainersRunning: NotRequired[int]
    defaultComputePool: bool
    defaultAuxPool: bool
    preemptible: bool
    minAgents: int
    maxAgents: int
    schedulerType: str
    schedulerFittingPolicy: str
    location: str
    clusterName: str
    accelerator: str
    instanceType: NotRequired[str]
    imageId: NotRequired[str]
    details: NotRequired[Json]
    stats: Json
    resourceManagerMetadata: NotRequired[Json]
    agentDockerImage: NotRequired[str]
    agentDockerNetwork: NotRequired[str]
    agentDockerRuntime: NotRequired[str]
    agentFluentImage: NotRequired[str]
    containerStartupScript: NotRequired[str]
    startupScript: NotRequired[str]
    masterUrl: NotRequired[str]
    masterCertName: NotRequired[str]
    maxIdleAgentPeriod: NotRequired[float]
    maxAgentStartingPeriod: NotRequired[float]
    auxContainerCapacityPerAgent: NotRequired[int]


class Template(TypedDict):
    name: str
    config: Json
    workspaceId: int


class TokenInfo(TypedDict):
    id: int
    userId: int
    createdAt: str
    expiry: str
    description: str
    revoked: bool
    tokenType: str


class Trial(TypedDict):
    id: int
    experimentId: int
    state: str
    stateReason: str
    startTime: str
    endTime: str | None
    hparams: Json
    restarts: int
    totalBatchesProcessed: int
    bestValidation: Json | None
    latestValidation: Json | None
    bestCheckpoint: Json | None
    checkpointCount: int
    totalCheckpointSize: str
    runnerState: str
    wallClockTime: float
    taskId: str
    taskIds: list[str]
    warmStartCheckpointUuid: str | None
    searcherMetricValue: float | None
    summaryMetrics: Json
    metadata: Json | None
    logPolicyMatched: str | None
    attempts: int
    stopCause: str | None
    refusedReports: str


class Trigger(TypedDict):
    id: int
    webhookId: int
    triggerType: str
    condition: Json


class User(TypedDict):
    id: int
    username: str
    admin: bool
    active: bool
    remote: bool
    displayName: NotRequired[str]
    modifiedAt: str
    lastAuthAt: NotRequired[str | None]
    agentUserGroup: NotRequired[AgentUserGroup | None]


class Webhook(TypedDict):
    id: int
    name: str
    url: str
    webhookType: str
    mode: str
    workspaceId: int
    triggers: list[Trigger]
    failedAt: str | None
    failure: str


class WindowLine(TypedDict):
    id: int
    at: float
    level: str
    rank: int | None
    node: str | None
    attempt: int | None
    stream: str | None
    text: str
    cut: int


class Workspace(TypedDict):
    id: int
    name: str
    archived: bool
    immutable: bool
    username: str
    userId: int
    numProjects: int
    numExperiments: int
    pinned: bool
    pinnedAt: str | None
    state: str
    errorMessage: str
    agentUserGroup: AgentUserGroup | None
    checkpointStorageConfig: Json | None
    defaultComputePool: str
    defaultAuxPool: str
