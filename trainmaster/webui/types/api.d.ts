/**
 * What the master's answers hold.
 *
 * Written by `python -m tests.support.webui.types` from the OpenAPI document that the master serves; do not edit.
 */

export type Json = { [name: string]: unknown };

export interface AgentUserGroup {
    agentUid?: number | null;
    agentUser?: string | null;
    agentGid?: number | null;
    agentGroup?: string | null;
}

export interface Experiment {
    id: number;
    name: string;
    description: string;
    notes: string;
    labels: (string)[];
    state: string;
    stateReason: string;
    archived: boolean;
    startTime: string;
    endTime: string | null;
    duration: number | null;
    progress: number;
    numTrials: number;
    trialIds: (number)[];
    username: string;
    displayName: string;
    userId: number;
    projectId: number;
    projectName: string;
    projectOwnerId: number;
    workspaceId: number;
    workspaceName: string;
    parentArchived: boolean;
    resourcePool: string;
    jobId: string;
    searcherType: string;
    searcherMetric: string;
    forkedFrom: number | null;
    bestTrialId: number | null;
    bestTrialSearcherMetric: number | null;
    checkpointCount: number;
    checkpointSize: string;
    modelDefinitionSize: number;
    hyperparameters: Json;
    config: Json;
    originalConfig: string;
    unmanaged: boolean;
    externalExperimentId: string | null;
}

export interface ExperimentTable {
    columns: (string)[];
    rows: ((unknown)[])[];
    total: number;
    states: { [name: string]: number };
}

export interface Outcome {
    id: number;
    error: string;
}

export interface PageSession {
    user: User | null;
    roles: boolean;
    permissions: { [name: string]: (number)[] | null };
    clusterName: string;
    version: string;
    message: string;
}

export interface ResultsAnswer {
    results: (Outcome)[];
}

export interface TicketAnswer {
    ticket: string;
    seconds: number;
}

export interface Trial {
    id: number;
    experimentId: number;
    state: string;
    stateReason: string;
    startTime: string;
    endTime: string | null;
    hparams: Json;
    restarts: number;
    totalBatchesProcessed: number;
    bestValidation: Json | null;
    latestValidation: Json | null;
    bestCheckpoint: Json | null;
    checkpointCount: number;
    totalCheckpointSize: string;
    runnerState: string;
    wallClockTime: number;
    taskId: string;
    taskIds: (string)[];
    warmStartCheckpointUuid: string | null;
    searcherMetricValue: number | null;
    summaryMetrics: Json;
    metadata: Json | null;
    logPolicyMatched: string | null;
    attempts: number;
    stopCause: string | null;
}

export interface User {
    id: number;
    username: string;
    admin: boolean;
    active: boolean;
    remote: boolean;
    displayName?: string;
    modifiedAt: string;
    lastAuthAt?: string | null;
    agentUserGroup?: AgentUserGroup | null;
}
