/**
 * What the master's answers hold.
 *
 * Written by `scripts/generate` from the OpenAPI document that the master serves; do not edit.
 */

export type Json = { [name: string]: unknown };

export interface AgentUserGroup {
    agentUid?: number | null;
    agentUser?: string | null;
    agentGid?: number | null;
    agentGroup?: string | null;
}

export interface Attempt {
    id: string;
    attempt: number;
    state: string;
    created: number;
    submitted: number | null;
    started: number | null;
    ended: number | null;
    endsAt: number | null;
    expectedStart: number | null;
    expectedError: number | null;
    waits: string;
    job: string | null;
    cluster: string;
    pool: string;
    slots: number;
    nodes: (string)[];
    outcome: string | null;
    how: string;
    preemptReason: string | null;
    preemptedAt: number | null;
    exits: (RankExit)[];
    checkpoints: (AttemptCheckpoint)[];
    trainedFrom: number | null;
    trainedTo: number | null;
    lostSteps: number;
    slotSeconds: number;
}

export interface AttemptCheckpoint {
    uuid: string;
    at: number;
    steps: number;
    size: number;
    state: string;
}

export interface AttemptsAnswer {
    attempts: (Attempt)[];
}

export interface BracketView {
    rungs: (RungView)[];
    trials: number;
    running: number;
}

export interface CheckpointTable {
    columns: (string)[];
    rows: ((unknown)[])[];
}

export interface ComparedSetting {
    part: string;
    name: string;
    values: (unknown)[];
}

export interface ComparedThing {
    id: number;
    experiment: number;
    name: string;
    trial: number | null;
    state: string;
    why: string;
    user: string;
    workspaceId: number;
    started: number;
    ended: number | null;
    best: number | string | null;
    last: number | string | null;
    atBudget: number | string | null;
    end: number | null;
    steps: number;
    trials: number;
    attempts: number;
    restarts: number;
    slotSeconds: number;
    queueSeconds: number;
    pool: string;
    nodes: (string)[];
}

export interface Comparison {
    kind: string;
    things: (ComparedThing)[];
    missing: (MissingThing)[];
    group: string;
    metric: string;
    smallerIsBetter: boolean;
    xName: string;
    budget: number | null;
    curves: Curves | null;
    metrics: (MetricName)[];
    settings: (ComparedSetting)[];
    settingsLeftOut: number;
}

export interface Curves {
    group: string;
    metric: string;
    xName: string;
    x: (number)[];
    trials: (number)[];
    y: ((number | null)[])[];
    last: (number | null)[];
    pauses: ((number)[])[];
    whole: boolean;
    seq: number;
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

export interface ExperimentBoard {
    experiment: ExperimentHead;
    metrics: (MetricName)[];
    hparams: (string)[];
    hparamTypes: { [name: string]: string };
    constants: Json;
    columns: (string)[];
    rows: ((unknown)[])[];
    brackets: (BracketView)[];
    curves: Curves | null;
}

export interface ExperimentHead {
    id: number;
    name: string;
    state: string;
    why: string;
    description: string;
    notes: string;
    labels: (string)[];
    archived: boolean;
    unmanaged: boolean;
    user: string;
    userId: number;
    projectId: number;
    project: string;
    workspaceId: number;
    workspace: string;
    parent: number | null;
    jobId: string;
    pool: string;
    started: number;
    ended: number | null;
    progress: number;
    searcher: string;
    metric: string;
    smallerIsBetter: boolean;
    timeMetric: string;
    maxTime: number | null;
    maxTrials: number | null;
    planned: boolean;
    slots: number;
    priority: number | null;
    weight: number | null;
    maxSlots: number | null;
    trials: number;
    counts: { [name: string]: number };
    best: number | string | null;
    bestTrial: number | null;
    checkpoints: number;
    checkpointSize: number;
    slotSeconds: number;
    secondsSaved: number | null;
}

export interface ExperimentTable {
    columns: (string)[];
    rows: ((unknown)[])[];
    total: number;
    states: { [name: string]: number };
}

export interface GitAnswer {
    git: GitView | null;
}

export interface GitView {
    commit: string;
    committer: string;
    committed: string;
    branch: string;
    remote: string;
    untracked: number;
    diff: string;
    diffCut: boolean;
    changedLines: number;
}

export interface HomeAnswer {
    at: number;
    needs: (HomeExperiment)[];
    runs: (HomeExperiment)[];
    waits: (HomeExperiment)[];
    done: (HomeExperiment)[];
    tasks: (HomeTask)[];
    pools: (HomePool)[];
    total: number;
    others: number;
}

export interface HomeExperiment {
    id: number;
    name: string;
    state: string;
    why: string;
    user: string;
    userId: number;
    workspaceId: number;
    jobId: string;
    pool: string;
    slots: number;
    since: number;
    progress: number;
    metric: string;
    smallerIsBetter: boolean;
    best: number | string | null;
    bestTrial: number | null;
    recent: (number)[];
    trials: number;
    running: number;
    waiting: number;
    slotsUsed: number;
    slotSeconds: number;
    expectedStart: number | null;
    expectedError: number | null;
    failedTrial: number | null;
    eta: number | null;
}

export interface HomePool {
    name: string;
    cluster: string;
    slots: number;
    used: number;
    waiting: number;
    rests: string;
    accelerator: string;
}

export interface HomeTask {
    id: string;
    kind: string;
    name: string;
    state: string;
    ready: boolean;
    why: string;
    since: number;
    address: string | null;
}

export interface LogBins {
    lines: (number)[];
    warnings: (number)[];
    errors: (number)[];
    matches: (number)[] | null;
}

export interface LogLine {
    id: number;
    at: number;
    level: string;
    rank: number | null;
    node: string | null;
    attempt: number | null;
    stream: string | null;
    text: string;
}

export interface LogWindow {
    lines: (WindowLine)[];
    position: number;
    total: number;
    newest: number;
    began: number | null;
    focus: number | null;
    match: number | null;
    matches: number | null;
    matched: (number)[];
    bins: LogBins | null;
}

export interface Machine {
    series: (MachineSeries)[];
    total: number;
}

export interface MachineSeries {
    name: string;
    node: string;
    gpu: string;
    at: (number)[];
    values: (number)[];
}

export interface MetricName {
    group: string;
    name: string;
}

export interface MissingThing {
    id: number;
    why: string;
}

export interface NodeTrouble {
    node: string;
    cluster: string;
    jobs: number;
    trials: number;
    at: number;
    why: string;
    trial: number;
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

export interface PlanBudget {
    maxTrials: number | null;
    slotHours: number | null;
    deadline: string | null;
}

export interface PlanForecast {
    trials: number | null;
    slotHours: number | null;
    end: string | null;
}

export interface PlanUse {
    trials: number;
    slotHours: number;
}

export interface PlanWait {
    median: number | null;
    jobs: number;
}

export interface RaceBracket {
    units: (number)[];
    trials: number;
    running: number;
    pauses: boolean;
}

export interface RankExit {
    rank: number;
    node: string;
    code: number | null;
    text: string;
}

export interface ResultsAnswer {
    results: (Outcome)[];
}

export interface RungRace {
    metric: string;
    smallerIsBetter: boolean;
    timeMetric: string;
    brackets: (RaceBracket)[];
    columns: (string)[];
    rows: ((unknown)[])[];
    first: number;
    total: number;
}

export interface RungView {
    units: number;
    trials: (number)[];
    values: (number | null)[];
    cut: number | null;
    stopped: number;
    paused: number;
}

export interface SearchCourse {
    seconds: (number)[];
    lower: (number | null)[];
    median: (number | null)[];
    upper: (number | null)[];
}

export interface SearchPlanAnswer {
    budget: PlanBudget;
    used: PlanUse;
    forecast: PlanForecast;
    wait: PlanWait;
    unitSeconds: number | null;
    sentences: (string)[];
}

export interface SearchRun {
    bests: ((number)[])[];
    spent: (number)[];
    seconds: number;
    slotSeconds: number;
    trials: number;
    lengths: ((number)[])[];
}

export interface SearchSimulation {
    metric: string;
    smallerIsBetter: boolean;
    timeMetric: string;
    searcher: string;
    workers: number;
    recorded: SearchRun | null;
    trials: number;
    short: number;
    runs: (SearchRun)[];
    course: SearchCourse;
}

export interface StorageShare {
    id: number;
    name: string;
    owner: string;
    workspace: string;
    checkpoints: number;
    size: number;
}

export interface StorageUsage {
    shares: (StorageShare)[];
    place: string;
    free: number | null;
    total: number | null;
}

export interface StoryAnswer {
    events: (StoryEvent)[];
    more: boolean;
}

export interface StoryEvent {
    id: number;
    at: number;
    trial: number | null;
    subject: string;
    event: string;
    before: string;
    after: string;
    why: string;
    decisions: (string)[];
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
    refusedReports: string;
}

export interface TrialBoard {
    trial: TrialHead;
    attempts: (Attempt)[];
    metrics: (MetricName)[];
    curve: TrialCurve | null;
    log: (LogLine)[];
}

export interface TrialCurve {
    group: string;
    metric: string;
    x: (number)[];
    y: (number)[];
}

export interface TrialCurves {
    xName: string;
    curves: (TrialCurve)[];
}

export interface TrialHead {
    id: number;
    experimentId: number;
    experiment: string;
    taskId: string;
    state: string;
    why: string;
    stop: string | null;
    searchPause: string;
    parent: number | null;
    copies: (number)[];
    user: string;
    userId: number;
    workspaceId: number;
    unmanaged: boolean;
    metric: string;
    smallerIsBetter: boolean;
    hparams: Json;
    best: number | string | null;
    bestSteps: number | null;
    bestCheckpoint: string | null;
    steps: number;
    progress: number;
    restarts: number;
    maxRestarts: number;
    started: number;
    ended: number | null;
    slotSeconds: number;
    checkpoints: number;
    checkpointSize: number;
    refusedReports: number;
}

export interface UsageAnswer {
    first: string;
    last: string;
    slotSeconds: number;
    days: (UsageDay)[];
    users: (UsageShare)[];
    pools: (UsageShare)[];
    labels: (UsageShare)[];
    nodes: (NodeTrouble)[];
}

export interface UsageDay {
    day: number;
    slotSeconds: number;
}

export interface UsageShare {
    name: string;
    slotSeconds: number;
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

export interface WindowLine {
    id: number;
    at: number;
    level: string;
    rank: number | null;
    node: string | null;
    attempt: number | null;
    stream: string | null;
    text: string;
    cut: number;
}
